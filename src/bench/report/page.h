// A page that needs nothing but itself: no network, no script, no font of its own; light or dark as the system is, or
// the other way at a touch.
#pragma once

#include <string>

namespace kazeia::bench::report {

// `title` is not escaped; `body` is HTML. Nothing in the page may be loaded or run, whatever `body` contains: the
// page's own policy says so to the browser.
std::string page(const std::string& title, const std::string& body);

}  // namespace kazeia::bench::report
