#pragma once

#include <ATen/autocast_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace warpfuse {

/// Casts arguments as autocast on a device does, to its dtype or a given one. Operators that are
/// called while this lives see no autocast.
template <at::DeviceType kDevice>
class AutocastTo {
 public:
  explicit AutocastTo(at::ScalarType dtype = at::autocast::get_autocast_dtype(kDevice))
      : dtype_(dtype) {}

  /// A tensor, or an optional one.
  template <typename Tensor>
  Tensor operator()(const Tensor& tensor) const {
    return at::autocast::cached_cast(dtype_, tensor, kDevice);
  }

 private:
  c10::impl::ExcludeDispatchKeyGuard no_autocast_{
      at::autocast::get_autocast_dispatch_key_from_device_type(kDevice)};
  at::ScalarType dtype_;
};

}  // namespace warpfuse
