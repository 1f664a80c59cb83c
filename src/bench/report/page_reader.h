// For tests: reads a page strictly, as XML is read, so that nothing is left to the goodwill of browsers.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace kazeia::bench::report {

struct PageElement {
  std::string name;
  std::map<std::string, std::string> attributes;  // unescaped
  std::string text;                               // directly in it, unescaped

  std::string attribute(const std::string& key) const {
    const auto found = attributes.find(key);
    return found == attributes.end() ? "" : found->second;
  }
  bool has_class(std::string_view name) const;
};

struct ReadPage {
  std::vector<PageElement> elements;  // in the order of their beginnings
  std::string error;                  // empty: every element is closed, every attribute quoted, every character escaped

  std::vector<const PageElement*> with_class(std::string_view name) const;
  std::vector<const PageElement*> named(std::string_view name) const;
  std::string all_text() const;  // of all elements but the style sheet, blank between two
};
ReadPage read_page(std::string_view html);

}  // namespace kazeia::bench::report
