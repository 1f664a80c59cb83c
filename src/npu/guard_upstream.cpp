// The guard over upstream's own driver table. Apart from the rest so that only what needs it links upstream's
// Hexagon host code.
#include <dlfcn.h>

#include "npu/guard.h"
#include "npu/guard_driver.h"

// htp-drv.cpp defines these and no header of upstream declares them.
extern kazeia::npu::RpcmemAlloc rpcmem_alloc_pfn;
extern kazeia::npu::RpcmemAlloc2 rpcmem_alloc2_pfn;
extern kazeia::npu::RpcmemFree rpcmem_free_pfn;
extern kazeia::npu::RpcmemToFd rpcmem_to_fd_pfn;
extern kazeia::npu::FastrpcMmap fastrpc_mmap_pfn;
extern kazeia::npu::FastrpcMunmap fastrpc_munmap_pfn;
extern kazeia::npu::QueueCreate dspqueue_create_pfn;
extern kazeia::npu::QueueClose dspqueue_close_pfn;
extern kazeia::npu::QueueExport dspqueue_export_pfn;
extern kazeia::npu::QueueWrite dspqueue_write_pfn;
extern kazeia::npu::QueueRead dspqueue_read_pfn;
extern kazeia::npu::QueueReadNoblock dspqueue_read_noblock_pfn;
extern kazeia::npu::HandleOpen remote_handle64_open_pfn;
extern kazeia::npu::HandleInvoke remote_handle64_invoke_pfn;
extern kazeia::npu::HandleClose remote_handle64_close_pfn;
extern kazeia::npu::HandleControl remote_handle64_control_pfn;
extern kazeia::npu::DriverControl remote_handle_control_pfn;
extern kazeia::npu::DriverControl remote_session_control_pfn;

namespace kazeia::npu {
namespace {

// Upstream unloads the driver from a static destructor. A thread that hangs inside it would then run into unmapped
// code in the last moments of the process: a crash instead of the user's exit code.
void keep_loaded(HandleOpen function) {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<void*>(function), &info) == 0 || info.dli_fname == nullptr) return;
  ::dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
}

}  // namespace

Status Guard::install(const GuardOptions& options) {
  DriverTable table;
  table.rpcmem_alloc = &rpcmem_alloc_pfn;
  table.rpcmem_alloc2 = &rpcmem_alloc2_pfn;
  table.rpcmem_free = &rpcmem_free_pfn;
  table.rpcmem_to_fd = &rpcmem_to_fd_pfn;
  table.mmap = &fastrpc_mmap_pfn;
  table.munmap = &fastrpc_munmap_pfn;
  table.queue_create = &dspqueue_create_pfn;
  table.queue_close = &dspqueue_close_pfn;
  table.queue_export = &dspqueue_export_pfn;
  table.queue_write = &dspqueue_write_pfn;
  table.queue_read = &dspqueue_read_pfn;
  table.queue_read_noblock = &dspqueue_read_noblock_pfn;
  table.handle_open = &remote_handle64_open_pfn;
  table.handle_invoke = &remote_handle64_invoke_pfn;
  table.handle_close = &remote_handle64_close_pfn;
  table.handle_control = &remote_handle64_control_pfn;
  table.driver_control = &remote_handle_control_pfn;
  table.session_control = &remote_session_control_pfn;
  const HandleOpen driver_open = remote_handle64_open_pfn;
  KAZEIA_TRY(install_over(table, options));
  if (driver_open != nullptr) keep_loaded(driver_open);
  return {};
}

}  // namespace kazeia::npu
