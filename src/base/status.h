// SPDX-License-Identifier: Apache-2.0
//
// Status and Result<T>: how an operating error (I/O, a damaged file, a bad request, no memory in
// the budget) reaches the caller. A bug is TESSERA_CHECK (base/check.h); an expected outcome (a
// miss, a full queue) is a named enum of the function that has it, never a Status.
//
// A message is one line that names the key, tensor, path or field with expected and actual value.
// Result<T> has the surface of std::expected<T, Status>, which clang 14 lacks.
//
// Threads: values; no shared state.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace tessera {

// The numbers are the exit codes of the command line (DESIGN §8) where one exists.
enum class StatusCode {
  kOk = 0,
  kFailed = 1,           // a check the user asked for did not hold
  kInvalidArgument = 2,  // wrong flag, wrong field, wrong value
  kBadFile = 3,          // an input file that is damaged, inconsistent or not supported
  kNoMemory = 4,         // the budget cannot hold it; the message has the bytes needed
  kIo = 5,               // the operating system refused
  kCancelled = 6,        // the caller went away
  kUnavailable = 7,      // shutting down
};

std::string_view StatusCodeName(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  static Status Ok() { return Status(); }
  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }
  std::string ToString() const;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

inline Status InvalidArgument(std::string m) {
  return {StatusCode::kInvalidArgument, std::move(m)};
}
inline Status BadFile(std::string m) { return {StatusCode::kBadFile, std::move(m)}; }
inline Status NoMemory(std::string m) { return {StatusCode::kNoMemory, std::move(m)}; }
inline Status IoError(std::string m) { return {StatusCode::kIo, std::move(m)}; }

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}      // NOLINT: implicit as in std::expected
  Result(Status error) : error_(std::move(error)) {  // NOLINT
    TESSERA_CHECK(!error_.ok());
  }

  bool has_value() const { return value_.has_value(); }
  explicit operator bool() const { return has_value(); }
  const Status& error() const { return error_; }  // ok() when there is a value

  T& value() & {
    TESSERA_CHECK(has_value());
    return *value_;
  }
  const T& value() const& {
    TESSERA_CHECK(has_value());
    return *value_;
  }
  T&& value() && {
    TESSERA_CHECK(has_value());
    return std::move(*value_);
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::optional<T> value_;
  Status error_;
};

// Leaves the function with the error, when there is one.
#define TESSERA_RETURN_IF_ERROR(expr)                        \
  do {                                                       \
    if (::tessera::Status status_ = (expr); !status_.ok()) { \
      return status_;                                        \
    }                                                        \
  } while (false)

// TESSERA_ASSIGN_OR_RETURN(auto file, MappedFile::Open(path));
#define TESSERA_ASSIGN_OR_RETURN(lhs, expr) \
  TESSERA_ASSIGN_OR_RETURN_(TESSERA_CONCAT_(result_, __LINE__), lhs, expr)
#define TESSERA_ASSIGN_OR_RETURN_(result, lhs, expr) \
  auto result = (expr);                              \
  if (!result.has_value()) {                         \
    return result.error();                           \
  }                                                  \
  lhs = std::move(*result)
#define TESSERA_CONCAT_(a, b) TESSERA_CONCAT_INNER_(a, b)
#define TESSERA_CONCAT_INNER_(a, b) a##b

}  // namespace tessera
