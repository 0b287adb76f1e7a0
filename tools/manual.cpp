// xhat manual: the manual page, and completion for bash and zsh, written from the parser's own table of options.
#include <iostream>
#include <sstream>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "tools/commands.h"

namespace xhat::tool {
namespace {

struct Variable {
  const char* name;
  const char* text;
};
const Variable kVariables[] = {
    {"XHAT", "what to show and check, words with commas between them: dump=DIR, time, check, compiles, limit=N, ..."},
    {"DEBUG", "0 to 7: the same by levels; 2 shows each kernel of each call with its time"},
    {"XHAT_CACHE_DIR", "where compiled kernels are kept (~/.cache/xhat/kernels); empty: nowhere"},
    {"XHAT_CACHE_BYTES", "the most that they may take (1 GiB)"},
    {"XHAT_CPU_LEVEL", "sse41, avx2 or avx512: code for that level instead of the best that the processor has"},
    {"XHAT_VIZ", "1: a page for each op that runs, as xhat viz writes"},
};

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) text.replace(at, from.size(), to);
  return text;
}

std::vector<const CLI::App*> subcommands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

struct Described {
  std::vector<std::string> names;  // "-o", "--dims"; of a positional one "FILE"
  bool positional = false;
  bool takes_value = false;
  std::string value;                // "FILE", "N"; empty: none is named
  std::vector<std::string> values;  // where only these are taken
  std::string text;
};

std::vector<Described> options_of(const CLI::App& app) {
  std::vector<Described> all;
  for (const CLI::Option* o : app.get_options()) {
    Described d;
    for (const std::string& name : o->get_snames()) d.names.push_back("-" + name);
    for (const std::string& name : o->get_lnames()) d.names.push_back("--" + name);
    d.positional = d.names.empty();
    if (d.positional) d.names.push_back(o->get_name());
    d.takes_value = d.positional || o->get_items_expected_max() > 0;
    d.text = o->get_description();
    // "{full,off}", or "TEXT:{full,off}" where a check says it.
    const std::string type = o->get_type_name();
    const size_t open = type.find('{'), close = type.find('}');
    if (open != std::string::npos && close != std::string::npos) {
      std::stringstream in(type.substr(open + 1, close - open - 1));
      for (std::string value; std::getline(in, value, ',');) d.values.push_back(value);
    }
    d.value = open == std::string::npos ? type : fmt::format("{}", fmt::join(d.values, "|"));
    all.push_back(std::move(d));
  }
  return all;
}

// Text of a manual page: a hyphen is a minus as people type it, and a line begins with no control character.
std::string troff(std::string text) {
  text = replaced(replaced(text, "\\", "\\e"), "-", "\\-");
  text = replaced(text, "\n", "\n.br\n");
  return text.starts_with('.') || text.starts_with('\'') ? "\\&" + text : text;
}

std::string manual_page(const CLI::App& app) {
  std::string out = fmt::format(".TH XHAT 1 \"\" \"{}\" \"User Commands\"\n.SH NAME\nxhat \\- {}\n", app.version(),
                                troff(app.get_description().substr(app.get_description().find(' ') + 1)));
  out += ".SH SYNOPSIS\n.B xhat\n.I SUBCOMMAND\n[\\fIFILE\\fR] [\\fIOPTION\\fR]...\n.SH SUBCOMMANDS\n";
  for (const CLI::App* sub : subcommands_of(app)) {
    out += fmt::format(".SS xhat {}\n{}\n", sub->get_name(), troff(sub->get_description()));
    for (const Described& d : options_of(*sub)) {
      std::vector<std::string> names;
      for (const std::string& name : d.names) names.push_back((d.positional ? "\\fI" : "\\fB") + troff(name) + "\\fR");
      out += fmt::format(".TP\n{}{}\n{}\n", fmt::join(names, ", "),
                         d.takes_value && !d.positional && !d.value.empty() ? " \\fI" + troff(d.value) + "\\fR" : "", troff(d.text));
    }
    if (const std::string footer = sub->get_footer(); !footer.empty()) out += ".PP\n" + troff(footer) + "\n";
  }
  out += ".SH NOTES\n" + troff(app.get_footer()) + "\n.SH ENVIRONMENT\n";
  for (const Variable& v : kVariables) out += fmt::format(".TP\n.B {}\n{}\n", v.name, troff(v.text));
  return out;
}

bool is_file(const Described& d) {
  return d.values.empty() && (d.positional || d.value.find("FILE") != std::string::npos || d.names[0] == "-o");
}

std::string bash_completion(const CLI::App& app) {
  std::vector<std::string> subcommands, cases;
  for (const CLI::App* sub : subcommands_of(app)) {
    subcommands.push_back(sub->get_name());
    std::vector<std::string> names, values;
    for (const Described& d : options_of(*sub)) {
      if (!d.positional) names.insert(names.end(), d.names.begin(), d.names.end());
      if (d.positional) names.insert(names.end(), d.values.begin(), d.values.end());
      if (!d.positional && d.takes_value)
        values.push_back(fmt::format("        {}) words=\"{}\"; files={} ;;\n", fmt::join(d.names, "|"), fmt::join(d.values, " "),
                                     is_file(d) ? "any" : "none"));
    }
    cases.push_back(fmt::format("    {})\n      words=\"{}\"; files=xh\n      case $prev in\n{}      esac ;;\n", sub->get_name(),
                                fmt::join(names, " "), fmt::join(values, "")));
  }
  return fmt::format(R"(# Completion of xhat for bash; written by `xhat manual bash`.
_xhat() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} words files=none
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W "{} --help --version" -- "$cur"))
    return
  fi
  case ${{COMP_WORDS[1]}} in
{}  esac
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
  case $files in
    any) COMPREPLY+=($(compgen -f -- "$cur")) ;;
    xh) [[ $cur == -* ]] || COMPREPLY+=($(compgen -f -X '!*.xh' -- "$cur") $(compgen -d -- "$cur")) ;;
  esac
}}
complete -o filenames -F _xhat xhat
)",
                     fmt::join(subcommands, " "), fmt::join(cases, ""));
}

// A description between the brackets of _arguments, within single quotes.
std::string zsh_text(std::string text) {
  text = replaced(replaced(text.substr(0, text.find('\n')), "\\", "\\\\"), "'", "'\\''");
  for (const char* c : {"[", "]", ":"}) text = replaced(text, c, std::string("\\") + c);
  return text;
}

std::string zsh_completion(const CLI::App& app) {
  std::string subcommands, cases;
  for (const CLI::App* sub : subcommands_of(app)) {
    subcommands += fmt::format("    '{}:{}'\n", sub->get_name(), zsh_text(sub->get_description()));
    cases += fmt::format("    {})\n      _arguments", sub->get_name());
    for (const Described& d : options_of(*sub)) {
      const std::string action = !d.values.empty()                      ? fmt::format("({})", fmt::join(d.values, " "))
                                 : d.positional && d.names[0] == "FILE" ? "_files -g \"*.xh\""
                                 : is_file(d)                           ? "_files"
                                                                        : " ";
      const std::string value = d.takes_value ? ":value:" + action : "";
      if (d.positional)
        cases += fmt::format(" \\\n        '1{}'", ":" + d.names[0] + ":" + action);
      else
        for (const std::string& name : d.names) cases += fmt::format(" \\\n        '{}[{}]{}'", name, zsh_text(d.text), value);
    }
    cases += " ;;\n";
  }
  return fmt::format(R"(#compdef xhat
# Completion of xhat for zsh; written by `xhat manual zsh`.
_xhat() {{
  local -a subcommands=(
{}  )
  if ((CURRENT == 2)); then
    _describe 'subcommand' subcommands
    return
  fi
  local sub=$words[2]
  shift words
  ((CURRENT--))
  case $sub in
{}  esac
}}
_xhat "$@"
)",
                     subcommands, cases);
}

}  // namespace

int manual_command(const Command& c, const CLI::App& app) {
  if (c.page == "man") std::cout << manual_page(app);
  if (c.page == "bash") std::cout << bash_completion(app);
  if (c.page == "zsh") std::cout << zsh_completion(app);
  return kFine;
}

}  // namespace xhat::tool
