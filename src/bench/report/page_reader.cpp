#include "bench/report/page_reader.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <sstream>
#include <utility>

namespace kazeia::bench::report {
namespace {

constexpr std::array<std::string_view, 4> kEmptyElements{"meta", "link", "input", "br"};
constexpr std::array<std::pair<std::string_view, char>, 5> kEntities{
    {{"amp", '&'}, {"lt", '<'}, {"gt", '>'}, {"quot", '"'}, {"#39", '\''}}};

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
}

class Reader {
 public:
  explicit Reader(std::string_view html) : rest_(html) {}

  ReadPage read() {
    if (!take("<!DOCTYPE html>")) fail("no doctype");
    while (!rest_.empty() && page_.error.empty()) {
      if (take("</")) {
        close();
      } else if (take("<")) {
        open();
      } else {
        add_text(until('<'));
      }
    }
    if (!open_.empty()) fail("never closed: " + page_.elements[open_.back()].name);
    return std::move(page_);
  }

 private:
  bool take(std::string_view what) {
    if (!rest_.starts_with(what)) return false;
    rest_.remove_prefix(what.size());
    return true;
  }
  std::string_view until(char end) {
    const std::string_view piece = rest_.substr(0, rest_.find(end));
    rest_.remove_prefix(piece.size());
    return piece;
  }
  std::string name() {
    const auto end = std::find_if_not(rest_.begin(), rest_.end(), is_name);
    std::string found(rest_.begin(), end);
    rest_.remove_prefix(found.size());
    if (found.empty()) fail("a name is missing");
    return found;
  }
  void fail(const std::string& what) {
    if (page_.error.empty()) page_.error = what + " before: " + std::string(rest_.substr(0, 60));
  }
  std::string unescaped(std::string_view text) {
    std::string plain;
    for (std::size_t at = 0; at < text.size(); ++at) {
      const auto byte = static_cast<unsigned char>(text[at]);
      if (text[at] == '<' || text[at] == '>' || (byte < 0x20 && text[at] != '\n' && text[at] != '\t') || byte == 0x7f) {
        fail("a character that has to be escaped");
      }
      if (text[at] != '&') {
        plain += text[at];
        continue;
      }
      const std::size_t end = text.find(';', at);
      const std::string_view entity = end == std::string_view::npos ? "" : text.substr(at + 1, end - at - 1);
      const auto* known =
          std::find_if(kEntities.begin(), kEntities.end(), [&](const auto& e) { return e.first == entity; });
      if (known == kEntities.end()) {
        fail("no such entity");
        return plain;
      }
      plain += known->second;
      at = end;
    }
    return plain;
  }
  void add_text(std::string_view text) {
    const std::string plain = unescaped(text);
    if (plain.find_first_not_of(" \n") == std::string::npos) return;
    if (open_.empty()) return fail("text outside of everything");
    page_.elements[open_.back()].text += plain;
  }
  void open() {
    PageElement element{name(), {}, {}};
    while (take(" ") || take("\n")) {
      const std::string key = name();
      if (!take("=\"")) {
        fail("an attribute without a quoted value");
        return;
      }
      const std::string value = unescaped(until('"'));
      if (!take("\"")) fail("a quote that does not end");
      if (!element.attributes.emplace(key, value).second) fail("an attribute that is there twice");
    }
    const bool closed = take("/");
    if (!take(">")) fail("a tag that does not end");
    const bool style = element.name == "style";
    const bool empty = std::find(kEmptyElements.begin(), kEmptyElements.end(), element.name) != kEmptyElements.end();
    page_.elements.push_back(std::move(element));
    if (closed || empty) return;
    open_.push_back(page_.elements.size() - 1);
    if (!style) return;
    page_.elements.back().text = rest_.substr(0, rest_.find("</style>"));
    rest_.remove_prefix(page_.elements.back().text.size());
  }
  void close() {
    const std::string closing = name();
    if (!take(">")) fail("a closing tag that does not end");
    if (open_.empty() || page_.elements[open_.back()].name != closing) return fail("</" + closing + "> closes another");
    open_.pop_back();
  }

  std::string_view rest_;
  std::vector<std::size_t> open_;
  ReadPage page_;
};

}  // namespace

bool PageElement::has_class(std::string_view wanted) const {
  std::istringstream classes(attribute("class"));
  return std::find(std::istream_iterator<std::string>(classes), {}, wanted) != std::istream_iterator<std::string>();
}

std::vector<const PageElement*> ReadPage::with_class(std::string_view wanted) const {
  std::vector<const PageElement*> found;
  for (const PageElement& element : elements) {
    if (element.has_class(wanted)) found.push_back(&element);
  }
  return found;
}

std::vector<const PageElement*> ReadPage::named(std::string_view wanted) const {
  std::vector<const PageElement*> found;
  for (const PageElement& element : elements) {
    if (element.name == wanted) found.push_back(&element);
  }
  return found;
}

std::string ReadPage::all_text() const {
  std::string text;
  for (const PageElement& element : elements) {
    if (element.name != "style" && !element.text.empty()) text += element.text + " ";
  }
  return text;
}

ReadPage read_page(std::string_view html) {
  return Reader(html).read();
}

}  // namespace kazeia::bench::report
