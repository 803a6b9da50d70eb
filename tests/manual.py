#!/usr/bin/env python3
"""Man pages and completion have what the command and docs/ have, and nothing else: tests/manual.py WEIR

make man writes them beside WEIR. What the command takes is asked of the command itself, not read from its help.
"""
import collections
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

WEIR = pathlib.Path(sys.argv[1]).resolve()
MADE = WEIR.parent
DOCS = pathlib.Path(__file__).resolve().parent.parent / "docs"
LONG = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
failures = []
EMPTY = tempfile.mkdtemp()  # without files, which shells would offer, too


def check(holds, what):
    if not holds:
        failures.append(what)
        print(f"wrong: {what}")


def run(*words, **more):
    return subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=20, check=False, **more)


def completed(*words):
    """What bash offers for the last word."""
    script = '. "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _weir; printf "%s\\n" "${COMPREPLY[@]}"'
    done = run("bash", "-euc", script, MADE / "completions" / "weir.bash", "weir", *words)
    check(done.returncode == 0 and not done.stderr, f"completion of {words}: {done.stderr}")
    return done.stdout.split()


# The function is called with stand-ins for what only exists while zsh completes a line.
ZSH = """
compadd() { while [[ $1 != -- ]] shift; shift; print -rl -- "$@"; }
_describe() { print -rl -- "${(@)${(P)@[-1]}%%:*}"; }
_files() { : }
compset() { : }
source @FILE@
"""


def completed_by_zsh(*words):
    script = "words=(weir \"$@\") CURRENT=$(($# + 1)); " + ZSH.replace("@FILE@", str(MADE / "completions" / "_weir"))
    done = run("zsh", "-fuc", script, "zsh", *words)
    check(done.returncode == 0 and not done.stderr, f"zsh: completion of {words}: {done.stderr}")
    last = words[-1].split("=")[-1]
    return [word for word in done.stdout.split() if word.startswith(last)]


def completed_by_fish(*words):
    script = 'source $argv[1]; complete -C (string join " " -- weir $argv[2..-1])'
    done = run("fish", "--no-config", "-c", script, MADE / "completions" / "weir.fish", *words, cwd=EMPTY)
    check(done.returncode == 0 and not done.stderr, f"fish: completion of {words}: {done.stderr}")
    return [line.split("\t")[0] for line in done.stdout.splitlines()]


def check_other_shells(commands):
    """zsh and fish offer the same as bash, which is compared with the command itself."""
    shells = [(name, call) for name, call in (("zsh", completed_by_zsh), ("fish", completed_by_fish))
              if shutil.which(name) or print(f"SKIP completion for {name}: it is not installed")]
    groups = {words[0] for words in commands if len(words) == 2}
    lines = [("",), ("-",), ("help", ""), ("rules", "publish", "--stage", ""), ("token", "create", "me", "--role", "o")]
    lines += [(name, "") for name in groups] + [(*words, "-") for words in commands]
    for name, call in shells:
        for words in lines:
            # fish offers long options only after two dashes; and a prefix of what is not an option matches inside, too.
            asked = (*words[:-1], "--") if name == "fish" and words[-1] == "-" else words
            check(sorted(set(call(*asked))) == sorted(completed(*words)), f"{name}: completion of {words}: {call(*asked)}")
        check(call("rules", "publish", "--stage=sh") in (["shadow"], ["--stage=shadow"]), f"{name}: --stage=sh")
    if shutil.which("zsh"):
        done = run("zsh", "-fc", "fpath=($1 $fpath); autoload -Uz compinit; compinit -D; print $_comps[weir]", "zsh",
                   MADE / "completions")
        check(done.stdout.strip() == "_weir", f"zsh does not find it: {done.stdout} {done.stderr}")


def takes(folder, words, option):
    """Whether a command knows an option. No command line here is right, so nothing runs."""
    if words[0] in ("dump", "demo"): # on any mistake they print only their usage
        return True
    given = (f"{option}=x", "--none")
    done = run(WEIR, *words, *given, cwd=folder)
    check(done.returncode == 2, f"{words} {given}: exit code {done.returncode}")
    return f"option '{option}'" not in done.stderr


def check_completion(folder):
    listed = [line.split()[0] for line in run(WEIR, "help").stdout.splitlines() if line.startswith("  ")]
    check(completed("") == listed and completed("help", "") == listed, "the commands")
    check(completed("-") == ["--help", "--version"], "options without a command")
    commands = []
    for name in listed:
        inner = [] if name == "help" else completed(name, "")
        for each in inner:
            check(run(WEIR, name, each, "--help").returncode == 0, f"weir {name} has a command {each}")
        many = re.search(r"weir \w+ (\w+(?:\|\w+)+)", run(WEIR, "help").stdout.split(f"\n  {name} ")[1].split("\n")[0])
        check(not many or set(many[1].split("|")) <= set(inner), f"all commands of weir {name}")
        commands += [(name, each) for each in inner] or ([(name,)] if name not in ("help", "version") else [])
    check(len(commands) > 25, "commands of commands")
    texts = {words: run(WEIR, *words, "--help").stdout for words in commands}
    for words in commands:
        offered = completed(*words, "-")
        mentioned = {"--help", *LONG.findall(texts[words])} # some of them another command's
        taken = {option for option in mentioned.union(offered) if takes(folder, words, option)}
        check(set(offered) == taken and len(offered) == len(taken), f"options of {words}: {set(offered) ^ taken}")
    check(set(completed("rules", "publish", "--stage", "=", "")) == {"draft", "shadow", "enforced"}, "values")
    check(completed("token", "create", "me", "--role", "o") == ["operator"], "the beginning of a value")
    check(completed("serve", "") == [] and completed("none", "-") == [], "what is left to the shell")
    return texts


def rendered(page):
    # AD: since groff 1.23 the macros, not the page, choose how lines are adjusted; a long path cannot be.
    done = run("groff", "-ww", "-man", "-dAD=l", "-Tutf8", "-P-cbou", "-rLL=100n", MADE / "man" / page)
    check(done.returncode == 0 and not done.stderr, f"{page}: {done.stderr}")
    return done.stdout


def words_of(text):
    return collections.Counter(re.findall(r"[^\W_]+", text))


def check_pages(texts):
    page = rendered("weir.1")
    check(run(WEIR, "version").stdout.strip() in page, "the version on the page")
    for words, text in texts.items():
        part = re.split(r"\n   weir [a-z ]+\n|\nSEE ALSO", page.split(f"\n   weir {' '.join(words)}\n")[1])[0]
        own = text.split("\nWhich ")[0].removeprefix("usage: ").replace("docs/reference/weir-yaml.md", "weir.yaml(5)")
        missing = words_of(own) - words_of(part)
        check(not missing, f"of {words} weir(1) lacks {missing}")
    for page, document in (("weir.yaml.5", "reference/weir-yaml.md"), ("weir.yaml.5", "reference/serve.md"),
                           ("weir-rules.5", "reference/rules.md"),
                           ("weir-rules.5", "reference/identity.md"), ("weir-rules.5", "reference/responses.md"),
                           ("weir-rules.5", "reference/descriptors.md"),
                           ("weir-nginx.5", "reference/nginx.md"), ("weir-nginx.5", "reference/nginx-queue.md"),
                           ("weir-nginx.5", "reference/nginx-logs.md"), ("weir-errors.5", "reference/errors.md")):
        text = (DOCS / document).read_text(encoding="utf-8").split("\n", 1)[1]
        text = re.sub(r"^```\w*|`|<!--.*?-->", "", text, flags=re.M)
        text = re.sub(r"^\|.*\n(?=\|[-|]+$)", "", text, flags=re.M) # the heads of tables
        text = re.sub(r"\[(weir-yaml\.md|rules\.md|nginx\.md|errors\.md)?([^\]]*)\]\([^)]*\)", r"\2", text) # those have other names
        missing = words_of(text) - words_of(rendered(page))
        check(not missing, f"of docs/{document} {page} lacks {missing}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        texts = check_completion(folder)
        check_other_shells(list(texts))
        check_pages(texts)
    pathlib.Path(EMPTY).rmdir()
    sys.exit(1 if failures else 0)


main()
