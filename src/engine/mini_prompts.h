// For the tests of this room: prompts of every kind that the mini models were trained on.
#pragma once

#include <string>
#include <vector>

#include "engine/mini_models.h"

namespace kazeia::mini {

inline std::vector<std::string> prompts() {
  const std::vector<std::string> single = {
      "Hello!",
      "My name is Clara.",
      "Please remember the secret word: quartz.",
      "What is 12 + 7?",
      "What is 15 - 9?",
      "What is 6 x 7?",
      "What is the capital of Japan?",
      "What is the opposite of hot?",
      "Which day comes after Tuesday?",
      "Repeat after me: comet violin blue falcon",
      "Count from 3 to 9.",
      "I see a cat, a dog and a bird. How many animals?",
      "I feel stressed.",
      "Bonjour !",
      "Mon nom est Louis.",
      "Souviens-toi du mot secret : saffron.",
      "Combien font 8 + 5 ?",
      "Combien font 14 - 6 ?",
      "Combien font 3 x 9 ?",
      "Quelle est la capitale de l'Égypte ?",
      "Quel est le contraire de fermé ?",
      "Quel mois vient après février ?",
      "Répète : pirate lune ember noir",
      "Compte de 5 à 11.",
      "Je vois un chat, un lion et un loup. Combien d'animaux ?",
      "Je dors mal.",
  };
  std::vector<std::string> all;
  for (const std::string& user : single) all.push_back(question(user));
  all.push_back("<|im_start|>system\nYou are Kazeia, a calm assistant.<|im_end|>\n" +
                history({{"My number is 42.", "I noted the number 42."}, {"Thank you.", "You are welcome."}}) +
                question("What is my number?"));
  all.push_back(history({{"I have a rabbit.", "A rabbit is a good companion."}}) +
                "<|im_start|>user\nWhich pet do I have?<|im_end|>\n<|im_start|>assistant\n<think>\n");
  all.push_back("<|im_start|>system\nTu es Kazeia. Réponds brièvement.<|im_end|>\n" +
                history({{"J'aime le violet.", "Le violet est une belle couleur."}, {"Merci.", "Avec plaisir."}}) +
                question("Quelle est ma couleur préférée ?"));
  all.push_back(history({{"Mon fruit préféré : cerise.", "C'est noté : cerise."}}) +
                "<|im_start|>user\nQuel est mon fruit préféré ?<|im_end|>\n<|im_start|>assistant\n<think>\n");
  return all;
}

}  // namespace kazeia::mini
