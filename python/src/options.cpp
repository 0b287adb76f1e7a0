// Options by keyword: a row for each.
#include <algorithm>
#include <functional>
#include <sstream>

#include <fmt/format.h>

#include "python/src/op.h"

namespace xhat::python {

void set_options(tool::Command& c, const nb::dict& options) {
  auto names = [](nb::handle value) {
    std::vector<std::string> list;
    if (nb::isinstance<nb::str>(value)) {
      std::istringstream text(nb::cast<std::string>(value));
      for (std::string item; std::getline(text, item, ',');) list.push_back(item);
    } else {
      for (nb::handle item : value) list.push_back(nb::cast<std::string>(item));
    }
    return list;
  };
  auto joined = [&](nb::handle value) { return fmt::format("{}", fmt::join(names(value), ",")); };
  struct Known {
    const char* name;
    std::function<void(nb::handle)> set;
  };
  const Known known[] = {
      {"stash", [&](nb::handle v) { c.stash = nb::cast<std::string>(v); }},
      {"stash_dtype", [&](nb::handle v) { c.stash_dtype = nb::cast<std::string>(v); }},
      {"fuse", [&](nb::handle v) { c.fuse = nb::cast<std::string>(v); }},
      {"keep", [&](nb::handle v) { c.keep = joined(v), c.drop.reset(); }},
      {"drop", [&](nb::handle v) { c.drop = joined(v), c.keep.reset(); }},
      {"wrt", [&](nb::handle v) { c.wrt = names(v); }},
      {"threads", [&](nb::handle v) { c.threads = nb::cast<int>(v); }},
      {"prices", [&](nb::handle v) { c.prices = nb::cast<std::string>(v); }},
      {"tuned", [&](nb::handle v) { c.tuned = nb::cast<std::string>(v); }},
      {"check_values", [&](nb::handle v) { c.check_values = nb::cast<bool>(v); }},
  };
  for (auto [key, value] : options) {
    const auto name = nb::cast<std::string>(key);
    auto option = std::ranges::find_if(known, [&](const Known& k) { return name == k.name; });
    if (option == std::end(known)) {
      std::vector<std::string> all;
      for (const Known& k : known) all.push_back(k.name);
      throw Error(fmt::format("there is no option '{}'; there are {}", name, fmt::join(all, ", ")));
    }
    try {
      if (!value.is_none()) option->set(value);
    } catch (const nb::cast_error&) {
      throw Error(fmt::format("option {} cannot be {}", name, nb::cast<std::string>(nb::repr(value))));
    }
  }
  if (!c.stash_dtype.empty() && c.stash_dtype != "bf16" && c.stash_dtype != "f16")
    throw Error("option stash_dtype is bf16 or f16, not '" + c.stash_dtype + "'");
  if (c.threads < 0) throw Error("option threads is 0 (one per core) or more");
}

}  // namespace xhat::python
