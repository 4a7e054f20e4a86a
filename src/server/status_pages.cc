// SPDX-License-Identifier: Apache-2.0
#include "server/status_pages.h"

#include <nlohmann/json.hpp>

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json ModelJson(const ModelCard& card) {
  return {{"id", card.id},
          {"object", "model"},
          {"created", card.created},
          {"owned_by", "tessera"},
          {"max_model_len", card.max_model_len},
          {"meta",
           {{"n_vocab", card.shape.vocab_size},
            {"n_ctx_train", card.shape.context_length},
            {"n_embd", card.shape.width},
            {"n_layer", card.shape.layers},
            {"size", card.weight_bytes}}}};
}

}  // namespace

std::string HealthBody() { return R"({"status":"ok"})"; }

std::string VersionBody() { return Dump({{"version", TESSERA_VERSION}}); }

std::string ModelBody(const ModelCard& card) { return Dump(ModelJson(card)); }

std::string ModelListBody(const ModelCard& card) {
  return Dump({{"object", "list"}, {"data", Json::array({ModelJson(card)})}});
}

}  // namespace tessera
