"""`fieldagent completion`: scripts with which a shell completes our commands, options and choices.

Each script finds the command that the words name, and offers its subcommands and options.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterable, Iterator, Sequence

from fieldagent.cli.arguments import build_parser
from fieldagent.cli.command_tree import Command, Option, list_commands
from fieldagent.system.exit_codes import OK


def print_completion(arguments: argparse.Namespace) -> int:
    """Print the completion script for the requested shell."""
    write = {"bash": _format_bash, "zsh": _format_zsh, "fish": _format_fish}[arguments.shell]
    print("\n".join(write(list(list_commands(build_parser())))))
    return OK


def _quote_place(words: Iterable[str]) -> str:
    """Return the quoted path of a command for the scripts, with a space before each word."""
    return shlex.quote("".join(f" {word}" for word in words))


def _format_offered(command: Command) -> str:
    flags = [name for option in command.options for name in option.names]
    choices = [choice for argument in command.arguments for choice in argument.choices]
    return " ".join([*command.subcommands, *choices, *flags])


def _format_cases(tree: Sequence[Command], offer: str, of_files: str) -> Iterator[str]:
    """Yield a part that the scripts for bash and zsh have in common. `previous` is the word before
    the current word, and `at` the path of the command.
    """
    yield '    case "$at $previous" in'
    for command in tree:
        for option in command.options:
            if option.value:
                places = " | ".join(_quote_place([*command.words, name]) for name in option.names)
                what = offer.format(" ".join(option.choices)) if option.choices else of_files
                yield f"        {places}) {what}; return ;;"
    yield "    esac"
    yield '    case "$at" in'
    for command in tree:
        yield f"        {_quote_place(command.words)}) {offer.format(_format_offered(command))} ;;"
    yield "    esac"


def _format_loop(tree: Sequence[Command], words: str, current: str) -> Iterator[str]:
    """Yield another part that the scripts for bash and zsh have in common: a loop over the words
    from `i` up to the current word, which finds the subcommand of each word.
    """
    yield f"    for ((; i < {current}; i++)); do"
    yield f'        case "$at ${{{words}[i]}}" in'
    yield f'            {_format_pattern(tree)}) at="$at ${{{words}[i]}}" ;;'
    yield "        esac"
    yield "    done"


def _format_pattern(tree: Sequence[Command]) -> str:
    """Return a shell pattern that matches the path of any command."""
    return " | ".join(_quote_place(command.words) for command in tree if command.words)


def _format_bash(tree: Sequence[Command]) -> Iterator[str]:
    yield "_fieldagent() {"
    yield "    local at='' i=1 word=${COMP_WORDS[COMP_CWORD]}"
    yield "    local previous=${COMP_WORDS[COMP_CWORD - 1]}"
    yield "    [[ $COMP_CWORD -gt 1 && ${COMP_WORDS[1]} == help ]] && i=2"
    yield from _format_loop(tree, "COMP_WORDS", "COMP_CWORD")
    yield "    COMPREPLY=()"
    yield from _format_cases(tree, "COMPREPLY=($(compgen -W '{}' -- \"$word\"))", ":")
    yield "}"
    # If nothing is offered, bash completes file names.
    yield "complete -o default -F _fieldagent fieldagent"


def _format_zsh(tree: Sequence[Command]) -> Iterator[str]:
    yield "#compdef fieldagent"
    yield "_fieldagent() {"
    yield "    local at='' i=2 previous=${words[CURRENT - 1]}"
    yield "    [[ $CURRENT -gt 2 && ${words[2]} == help ]] && i=3"
    yield from _format_loop(tree, "words", "CURRENT")
    yield from _format_cases(tree, "compadd -- {} || _files", "_files")
    yield "}"
    yield "# Called by the completion where this is one of its files; read by .zshrc otherwise."
    yield 'if [[ ${funcstack[1]} == _fieldagent ]]; then _fieldagent "$@"'
    yield "else compdef _fieldagent fieldagent; fi"


def _format_fish(tree: Sequence[Command]) -> Iterator[str]:
    yield "function __fieldagent_at"
    yield "    set -l at ''"
    yield "    set -l given (commandline -opc)"
    yield '    test "$given[2]" = help; and set -e given[2]'
    yield "    for word in $given[2..-1]"
    yield '        switch "$at $word"'
    yield f"            case {_format_pattern(tree).replace(' | ', ' ')}"
    yield '                set at "$at $word"'
    yield "        end"
    yield "    end"
    yield '    test "$at" = "$argv[1]"'
    yield "end"
    for command in tree:
        condition = _quote_for_fish(f"__fieldagent_at {_quote_place(command.words)}")
        complete_command = f"complete -c fieldagent -n {condition}"
        choices = [choice for argument in command.arguments for choice in argument.choices]
        next_words = [*command.subcommands, *choices]
        if next_words:
            yield f"{complete_command} -f -a {_quote_for_fish(' '.join(next_words))}"
        for option in command.options:
            yield f"{complete_command} {_format_fish_option(option)}"


def _format_fish_option(option: Option) -> str:
    names = [f"-l {name[2:]}" if name[:2] == "--" else f"-s {name[1:]}" for name in option.names]
    value = ["-r -F"] if option.value else []
    if option.choices:
        value = [f"-x -a {_quote_for_fish(' '.join(option.choices))}"]
    return " ".join([*names, *value, f"-d {_quote_for_fish(option.summary)}"])


def _quote_for_fish(text: str) -> str:
    """Quote a text for fish, which has two escapes within single quotes."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
