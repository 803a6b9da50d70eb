#!/usr/bin/env python3
"""Writes the completion for bash from the help texts of the weir command: completion.py WEIR > FILE

What a value may be is said where the help text lists it (`--stage draft|shadow|enforced`); all else is left to the
shell, which offers files.
"""
import re
import sys

import command_help

CHOICES = re.compile(r"[a-z_]+(\|[a-z_]+)*")

FUNCTION = r"""# bash completion for weir. Made by tools/completion.py from the help texts.
_weir()
{
    local at=$COMP_CWORD word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}
    local command=${COMP_WORDS[1]} words=
    COMPREPLY=()
    # "--stage=dr" is three words to bash.
    [[ $word == = ]] && word=
    [[ $before == = ]] && before=${COMP_WORDS[COMP_CWORD-2]}
    if ((at == 1)); then
        [[ $word == -* ]] && words="--help --version" || words="@COMMANDS@"
        COMPREPLY=($(compgen -W "$words" -- "$word"))
        return
    fi
    case $command in
@INNER@
    help) words="@COMMANDS@" ;;
    esac
    if [[ -n $words ]] && ((at == 2)); then
        [[ $word == -* ]] && words=--help
        COMPREPLY=($(compgen -W "$words" -- "$word"))
        return
    fi
    [[ -n $words ]] && command+=" ${COMP_WORDS[2]}" words=
    case "$command $before" in
@VALUES@
    esac
    if [[ -z $words && $word == -* ]]; then
        case $command in
@OPTIONS@
        esac
    fi
    [[ -z $words ]] || COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -o default -F _weir weir
"""


def choices(values):
    """`--stage draft|shadow`, or a line for each of them; one alone is an example."""
    words = [word for value in values if CHOICES.fullmatch(value) for word in value.split("|")]
    return " ".join(dict.fromkeys(words)) if len(words) > 1 else ""


def main():
    _, _, commands = command_help.commands(sys.argv[1])
    inner, values, options = [], [], []
    for one in commands:
        if one.inner:
            inner.append(f'    {one.words[0]}) words="{" ".join(each.words[1] for each in one.inner)}" ;;')
        for each in one.inner or [one]:
            if not each.usage:
                continue
            name, known = " ".join(each.words), each.options()
            for option in known:
                words = choices(known[option])
                if words:
                    values.append(f'    "{name} --{option}") words="{words}" ;;')
            options.append(f'        "{name}") words="{" ".join("--" + option for option in sorted(known))}" ;;')
    names = " ".join(one.words[0] for one in commands)
    parts = {"COMMANDS": [names], "INNER": inner, "VALUES": values, "OPTIONS": options}
    print(re.sub("@([A-Z]+)@", lambda found: "\n".join(parts[found[1]]), FUNCTION), end="")


main()
