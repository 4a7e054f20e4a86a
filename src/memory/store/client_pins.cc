// SPDX-License-Identifier: Apache-2.0
#include "memory/store/client_pins.h"

#include <algorithm>
#include <utility>

namespace tessera::store {

bool ClientPins::Add(LedgerLock& lock, EntryId checkpoint, std::string_view owner, PinInfo* info) {
  if (pins_.size() >= kClientPinsMax) return false;
  info->id = next_id_++;
  pins_.push_back({*info, std::string(owner), ledger_->Retain(lock, checkpoint)});
  if (info->expires_at > 0 && (next_expiry_ == 0 || info->expires_at < next_expiry_)) {
    next_expiry_ = info->expires_at;
  }
  return true;
}

void ClientPins::Drop(LedgerLock& lock, size_t index) {
  ledger_->Release(lock, std::move(pins_[index].retention));
  for (size_t i = index + 1; i < pins_.size(); ++i) {
    pins_[i - 1].info = pins_[i].info;
    pins_[i - 1].owner = std::move(pins_[i].owner);
    pins_[i - 1].retention = std::move(pins_[i].retention);
  }
  pins_.pop_back();
}

bool ClientPins::Remove(LedgerLock& lock, uint64_t id, std::string_view owner) {
  for (size_t i = 0; i < pins_.size(); ++i) {
    if (pins_[i].info.id != id || pins_[i].owner != owner) continue;
    Drop(lock, i);
    return true;
  }
  return false;
}

void ClientPins::Expire(LedgerLock& lock, uint64_t now) {
  if (next_expiry_ == 0 || now < next_expiry_) return;
  next_expiry_ = 0;
  for (size_t i = pins_.size(); i-- > 0;) {
    const uint64_t at = pins_[i].info.expires_at;
    if (at > 0 && at <= now) {
      Drop(lock, i);
    } else if (at > 0 && (next_expiry_ == 0 || at < next_expiry_)) {
      next_expiry_ = at;
    }
  }
}

void ClientPins::ReleaseAll(LedgerLock& lock) {
  while (!pins_.empty()) Drop(lock, pins_.size() - 1);
  next_expiry_ = 0;
}

std::vector<PinInfo> ClientPins::List(LedgerLock& lock, std::string_view owner) const {
  TESSERA_CHECK(lock.Guards(*ledger_));
  std::vector<PinInfo> list;
  for (const Entry& pin : pins_) {
    if (pin.owner != owner) continue;
    list.push_back(pin.info);
    list.back().lost = !ledger_->Keeps(pin.retention);
  }
  return list;
}

uint32_t ClientPins::count(EntryId checkpoint) const {
  return static_cast<uint32_t>(std::count_if(pins_.begin(), pins_.end(), [&](const Entry& pin) {
    return pin.retention.entry() == checkpoint && ledger_->Keeps(pin.retention);
  }));
}

}  // namespace tessera::store
