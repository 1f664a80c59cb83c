// Keeps text that people wrote from becoming control tokens.
//
// A rendered prompt has to be tokenised with special tokens on, because the template's own markers are special
// tokens; a user who types "<|im_end|>" would then end their turn and speak as somebody else. Tokenising the user's
// parts apart from the rest would be safe but not equal: BPE merges across the seam (white space, mostly), so
// ordinary conversations would be read differently from how the model was trained.
//
// So only text that contains a marker is treated: shield() puts a cut mark behind the first character of every
// marker in a message before the template is rendered, and split() cuts the rendered prompt at these marks. The pieces
// are tokenised one after the other. Without a marker in any message there is one piece and the tokens are those of the
// whole text; with one, the bytes are unchanged and no token spans a cut, so the marker is spelled out in ordinary
// tokens. What stays possible in theory: a template that deletes characters inside a message could join a
// marker together, and a marker of a single character cannot be cut; neither is known to exist. Vocabularies that put a
// space in front of every piece (SentencePiece) get one at a cut.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/model.h"

namespace kazeia {

class ControlText {
 public:
  // Markers: every control and unknown token of the vocabulary, and those user-defined ones ("<think>",
  // "<tool_call>") that the template uses. Other user-defined tokens are ordinary text to some vocabularies.
  ControlText(const Model& model, std::string_view template_source);

  // `text` with cut marks. Without a marker in it: `text`.
  std::string shield(std::string_view text) const;
  bool contains_marker(std::string_view text) const;
  // The pieces between the cut marks; joined they are the prompt. At least one, possibly empty.
  std::vector<std::string> split(std::string_view rendered) const;

  // A cut mark must not occur in anything that is rendered: sets one that occurs in none of the texts. Marks of
  // earlier shield() calls are no longer recognised.
  void choose_mark(const std::vector<std::string_view>& texts);

 private:
  std::vector<std::string> markers_;
  std::string mark_;
};

}  // namespace kazeia
