/* The subcommands of weir. Each gets argv with its own name first and returns the exit code. */
#ifndef WEIR_CLI_CLI_H
#define WEIR_CLI_CLI_H

#include <weir/weir.h>

int weir__cmd_agent(int argc, char **argv);
int weir__cmd_advise(int argc, char **argv);
int weir__cmd_check(int argc, char **argv);
int weir__cmd_convert(int argc, char **argv);
int weir__cmd_demo(int argc, char **argv);
int weir__cmd_dump(int argc, char **argv);
int weir__cmd_init(int argc, char **argv);
int weir__cmd_lint(int argc, char **argv);
int weir__cmd_queue(int argc, char **argv);
int weir__cmd_rules(int argc, char **argv);
int weir__cmd_serve(int argc, char **argv);
int weir__cmd_token(int argc, char **argv);
int weir__cmd_top(int argc, char **argv);

#endif
