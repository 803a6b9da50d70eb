#!/usr/bin/env python3
"""Writes the completions for bash, zsh and fish from the help texts of the weir command: completion.py WEIR FOLDER

The possible values of an option are those that the help text lists (`--stage draft|shadow|enforced`); all else is left
to the shell, which offers files. zsh and fish also show what a command or an option means.
"""
import pathlib
import re
import sys

import command_help

CHOICES = re.compile(r"[a-z_]+(\|[a-z_]+)*")

BASH = r"""# bash completion for weir. Made by tools/completion.py from the help texts.
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


ZSH = r"""#compdef weir
# zsh completion for weir. Made by tools/completion.py from the help texts.
_weir()
{
    local command=$words[2] word=$words[CURRENT] option=$words[CURRENT-1]
    local -a inner offered
    if ((CURRENT == 2)) || { ((CURRENT == 3)) && [[ $command == help ]] }; then
        offered=(@COMMANDS@)
        [[ $word == -* ]] && offered=(--help --version)
        _describe command offered
        return
    fi
    case $command in
@INNER@
    esac
    if (($#inner)) && ((CURRENT == 3)); then
        [[ $word == -* ]] && inner=(--help)
        _describe command inner
        return
    fi
    (($#inner)) && command+=" $words[3]"
    if [[ $word == --*=* ]]; then
        option=${word%%=*}
        compset -P '*='
    fi
    case "$command $option" in
@VALUES@
    esac
    if (($#offered)); then
        compadd -- $offered
    elif [[ $word == -* && $word != *=* ]]; then
        case $command in
@OPTIONS@
        esac
        _describe -o option offered
    else
        _files
    fi
}
_weir "$@"
"""

FISH = r"""# fish completion for weir. Made by tools/completion.py from the help texts.
# True if the command line names this command.
function __weir_is
    set -l given (commandline -opc)
    string match -q -- "$argv *" "$given[2..-1] "
end
# True if the next word names the command, or that of a group.
function __weir_needs
    set -l given (commandline -opc)
    test "$given[2..-1]" = "$argv"
end
@LINES@
"""


def choices(values):
    """`--stage draft|shadow`, or a line for each of them; one alone is an example."""
    words = [word for value in values if CHOICES.fullmatch(value) for word in value.split("|")]
    return " ".join(dict.fromkeys(words)) if len(words) > 1 else ""


def meanings(one):
    """The first line about each option that begins a term."""
    found = {}
    for block in one.blocks:
        for term, text in block:
            name = re.match(r"(?:-\w, )?--([a-z][a-z-]*)", term or "")
            if name and text:
                found.setdefault(name[1], re.split(r"[;.:] ", text)[0])
    return found


def filled(template, **parts):
    return re.sub("@([A-Z]+)@", lambda found: "\n".join(parts[found[1].lower()]), template)


def zsh_word(name, meaning):
    """An element of an array for _describe."""
    text = name.replace(":", r"\:") + (f":{meaning}" if meaning else "")
    return "'" + text.replace("'", r"'\''") + "'"


def fish_text(text):
    return "'" + text.replace("\\", r"\\").replace("'", r"\'") + "'"


def main():
    _, _, commands = command_help.commands(sys.argv[1])
    folder = pathlib.Path(sys.argv[2])
    short = {one.words[0]: re.split(": weir |; --", one.summary)[0] for one in commands}
    inner, values, options = [], [], []
    zsh_inner, zsh_values, zsh_options = [], [], []
    lines = [f"complete -c weir -n __weir_needs -f -a {name} -d {fish_text(meaning)}" for name, meaning in short.items()]
    lines += ["complete -c weir -n __weir_needs -l help", "complete -c weir -n __weir_needs -l version",
              f"complete -c weir -n '__weir_needs help' -f -a '{' '.join(short)}'"]
    for one in commands:
        if one.inner:
            names = [each.words[1] for each in one.inner]
            inner.append(f'    {one.words[0]}) words="{" ".join(names)}" ;;')
            zsh_inner.append(f'    {one.words[0]}) inner=({" ".join(names)}) ;;')
            lines += [f"complete -c weir -n '__weir_needs {one.words[0]}' -f -a '{' '.join(names)}'",
                      f"complete -c weir -n '__weir_needs {one.words[0]}' -l help"]
        for each in one.inner or [one]:
            if not each.usage:
                continue
            name, known, about = " ".join(each.words), each.options(), meanings(each)
            for option in known:
                words = choices(known[option])
                if words:
                    values.append(f'    "{name} --{option}") words="{words}" ;;')
                    zsh_values.append(f'    "{name} --{option}") offered=({words}) ;;')
                takes = f" -x -a '{words}'" if words else " -r" if known[option] else ""
                meaning = f" -d {fish_text(about[option])}" if option in about else ""
                lines.append(f"complete -c weir -n '__weir_is {name}' -l {option}{takes}{meaning}")
            options.append(f'        "{name}") words="{" ".join("--" + option for option in sorted(known))}" ;;')
            shown = " ".join(zsh_word("--" + option, about.get(option)) for option in sorted(known))
            zsh_options.append(f'        "{name}") offered=({shown}) ;;')
    (folder / "weir.bash").write_text(filled(BASH, commands=[" ".join(short)], inner=inner, values=values,
                                             options=options), encoding="utf-8")
    described = " ".join(zsh_word(name, meaning) for name, meaning in short.items())
    (folder / "_weir").write_text(filled(ZSH, commands=[described], inner=zsh_inner, values=zsh_values,
                                         options=zsh_options), encoding="utf-8")
    (folder / "weir.fish").write_text(filled(FISH, lines=lines), encoding="utf-8")


main()
