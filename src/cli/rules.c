/* weir rules: which commands there are. */
#include "cli/rules.h"
#include "cli/cli.h"

static const char help[] = "usage: weir rules COMMAND [OPTIONS]\n"
                           "Rules in a rules service: each rule, each domain of descriptors and the settings\n"
                           "(identity, normalize, allow, block, response) is a document with versions.\n"
                           "\n"
                           "  list [--stage STAGE] [--kind KIND] [--search TEXT]\n"
                           "  get NAME [--version N]              the text; 'published': the published set\n"
                           "  apply FILE|DIR|- [--dry-run] [--prune] [--publish STAGE] [--reason WHY]\n"
                           "  diff NAME [--from N] [--to N]       without numbers: enforced to current\n"
                           "  publish NAME... --stage STAGE [--version N] [--reason WHY]\n"
                           "  rollback NAME --to N [--publish STAGE] [--reason WHY], or --revision N\n"
                           "  history [NAME]                      versions of a document, or all revisions\n"
                           "  validate FILE|DIR|-\n" WEIR__SERVICE_HELP;

static const char list_help[] = "usage: weir rules list [OPTIONS]\n"
                                "Shows the documents and which versions of them are published.\n"
                                "\n"
                                "  --stage draft|shadow|enforced\n"
                                "  --kind rule|domain|settings\n"
                                "  --search TEXT        in name or summary\n" WEIR__SERVICE_HELP;
static const char get_help[] = "usage: weir rules get NAME [OPTIONS]\n"
                               "Prints the text of a document, which 'weir rules apply' accepts. The name\n"
                               "'published' is the published set.\n"
                               "\n"
                               "  --version N          an older one\n" WEIR__SERVICE_HELP;
static const char apply_help[] = "usage: weir rules apply [OPTIONS] FILE|DIR|-\n"
                                 "Creates and updates documents that differ from the files, and prints the diffs.\n"
                                 "A file is a rule file, or one rule or domain as 'weir rules get' prints it. All\n"
                                 "is checked before anything is written; a document that changes meanwhile stays.\n"
                                 "\n"
                                 "  --dry-run            only show and check\n"
                                 "  --publish shadow|enforced   publish it, too\n"
                                 "  --prune              delete documents that are not in the files;\n"
                                 "                       with --publish, also published ones\n"
                                 "  --reason WHY         kept with each version\n" WEIR__SERVICE_HELP;
static const char diff_help[] = "usage: weir rules diff NAME [OPTIONS]\n"
                                "How two versions of a document differ; without numbers: what would change if\n"
                                "the current one were enforced. 'weir rules apply --dry-run' compares with files.\n"
                                "\n"
                                "  --from N, --to N     versions\n" WEIR__SERVICE_HELP;
static const char publish_help[] = "usage: weir rules publish --stage STAGE [OPTIONS] NAME...\n"
                                   "Publishes documents, settings first if several are named.\n"
                                   "\n"
                                   "  --stage enforced     it decides\n"
                                   "  --stage shadow       it counts beside the enforced version and denies nothing\n"
                                   "  --stage draft        it is withdrawn\n"
                                   "  --version N          another than the current one, of one document\n"
                                   "  --reason WHY\n" WEIR__SERVICE_HELP;
static const char rollback_help[] = "usage: weir rules rollback NAME --to N [OPTIONS]\n"
                                    "       weir rules rollback --revision N [OPTIONS]\n"
                                    "Makes a new version with the text of an old one; or publishes again the set of\n"
                                    "a revision.\n"
                                    "\n"
                                    "  --to N               the old version\n"
                                    "  --publish shadow|enforced   publish the new version\n"
                                    "  --revision N         a revision that 'weir rules history' shows\n"
                                    "  --reason WHY\n" WEIR__SERVICE_HELP;
static const char history_help[] =
    "usage: weir rules history [NAME] [OPTIONS]\n"
    "The versions of a document; without a name, the revisions that were published.\n" WEIR__SERVICE_HELP;
static const char validate_help[] =
    "usage: weir rules validate [OPTIONS] FILE|DIR|-\n"
    "Are these documents good, with the settings of the files or of the service?\n" WEIR__SERVICE_HELP;

static const struct weir__subcommand commands[] = {
    {"list", WEIR__WITH(STAGE) | WEIR__WITH(KIND) | WEIR__WITH(SEARCH), 0, 0, "", weir__rules_list, list_help},
    {"get", WEIR__WITH(VERSION), 1, 1, "which document?", weir__rules_get, get_help},
    {"apply", WEIR__WITH(DRY_RUN) | WEIR__WITH(PRUNE) | WEIR__WITH(PUBLISH) | WEIR__WITH(REASON), 1, 1,
     "which file or directory?", weir__rules_apply, apply_help},
    {"diff", WEIR__WITH(FROM) | WEIR__WITH(TO), 1, 1, "which document?", weir__rules_diff, diff_help},
    {"publish", WEIR__WITH(STAGE) | WEIR__WITH(VERSION) | WEIR__WITH(REASON), 1, SIZE_MAX, "which document?",
     weir__rules_publish, publish_help},
    {"rollback", WEIR__WITH(TO) | WEIR__WITH(REVISION) | WEIR__WITH(PUBLISH) | WEIR__WITH(REASON), 0, 1, "",
     weir__rules_rollback, rollback_help},
    {"history", 0, 0, 1, "", weir__rules_history, history_help},
    {"validate", 0, 1, 1, "which file or directory?", weir__rules_validate, validate_help},
};

int weir__cmd_rules(int argc, char **argv)
{
    return weir__subcommand_run("rules", help, commands, sizeof commands / sizeof *commands, argc, argv);
}
