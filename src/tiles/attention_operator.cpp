#include "tiles/attention_operator.h"

#include <cassert>
#include <cstdint>

#include "attention/attention.h"
#include "ggml-backend.h"
#include "ggml-cpu/ggml-cpu-impl.h"
#include "ggml.h"

namespace kazeia::tiles {
namespace {

using attention::Task;

thread_local bool own_attention = false;

// Of FLASH_ATTN_EXT upstream uses the first four parameters: scale, bias, soft cap, precision.
constexpr std::uint32_t kNoteAt = GGML_MAX_OP_PARAMS / sizeof(std::int32_t) - 1;
constexpr std::int32_t kOurs = 0x6b61;

constexpr std::size_t kAlignment = 64;

float parameter(const ggml_tensor* op, std::uint32_t index) {
  return ggml_get_op_params_f32(op, index);
}

bool on_host(const ggml_tensor* tensor) {
  return tensor->buffer == nullptr || ggml_backend_buft_is_host(ggml_backend_buffer_get_type(tensor->buffer));
}

const std::byte* bytes_of(const ggml_tensor* tensor) {
  return static_cast<const std::byte*>(tensor->data);
}

// In ggml: q [dimension, rows, heads], k and v [dimension, positions, kv_heads], mask [positions, rows or more],
// out [dimension, heads, rows].
Task task_of(const ggml_tensor* op) {
  const ggml_tensor* q = op->src[0];
  const ggml_tensor* k = op->src[1];
  const ggml_tensor* v = op->src[2];
  const ggml_tensor* mask = op->src[3];
  Task task;
  task.dimension = q->ne[0];
  task.heads = q->ne[2];
  task.kv_heads = k->ne[2];
  task.rows = q->ne[1];
  task.positions = k->ne[1];
  task.scale = parameter(op, 0);
  task.q = bytes_of(q);
  task.q_row_stride = q->nb[1];
  task.q_head_stride = q->nb[2];
  task.k = bytes_of(k);
  task.k_position_stride = k->nb[1];
  task.k_head_stride = k->nb[2];
  task.v = bytes_of(v);
  task.v_position_stride = v->nb[1];
  task.v_head_stride = v->nb[2];
  if (mask != nullptr) {
    task.mask = bytes_of(mask);
    task.mask_row_stride = mask->nb[1];
  }
  task.out = static_cast<std::byte*>(op->data);
  task.out_row_stride = op->nb[2];
  task.out_head_stride = op->nb[1];
  return task;
}

bool is_cache(const ggml_tensor* tensor, const ggml_tensor* q) {
  return tensor->type == GGML_TYPE_F16 && tensor->nb[0] == sizeof(ggml_fp16_t) && tensor->ne[0] == q->ne[0] &&
         tensor->ne[3] == 1 && tensor->nb[1] % sizeof(ggml_fp16_t) == 0 && tensor->nb[2] % sizeof(ggml_fp16_t) == 0;
}

bool is_mask(const ggml_tensor* tensor, const ggml_tensor* q, const ggml_tensor* k) {
  return tensor->type == GGML_TYPE_F16 && tensor->nb[0] == sizeof(ggml_fp16_t) && tensor->ne[0] >= k->ne[1] &&
         tensor->ne[1] >= q->ne[1] && tensor->ne[2] == 1 && tensor->ne[3] == 1;
}

std::size_t scratch_of(const Task& task, int threads) {
  return task.is_wide() ? static_cast<std::size_t>(threads) * task.wide_scratch_bytes() : task.scratch_bytes();
}

// f(item) for all items, each by whichever thread is free.
template <typename F>
void share(const ggml_compute_params* params, std::int64_t items, F&& f) {
  if (params->ith == 0) ggml_threadpool_chunk_set(params->threadpool, params->nth);
  ggml_barrier(params->threadpool);
  for (std::int64_t item = params->ith; item < items; item = ggml_threadpool_chunk_add(params->threadpool, 1)) f(item);
}

}  // namespace

AttentionChoice::AttentionChoice(bool own) : before_(own_attention) {
  own_attention = own;
}
AttentionChoice::~AttentionChoice() {
  own_attention = before_;
}

bool is_attention(const ggml_tensor* op) {
  if (op->op != GGML_OP_FLASH_ATTN_EXT) return false;
  const ggml_tensor* q = op->src[0];
  const ggml_tensor* k = op->src[1];
  const ggml_tensor* v = op->src[2];
  const ggml_tensor* mask = op->src[3];
  const bool sinks = op->src[4] != nullptr;
  const float bias = parameter(op, 1), soft_cap = parameter(op, 2);
  if (sinks || bias != 0 || soft_cap != 0) return false;
  if (q->type != GGML_TYPE_F32 || q->nb[0] != sizeof(float) || q->ne[3] != 1 || op->nb[0] != sizeof(float))
    return false;
  if (!is_cache(k, q) || !is_cache(v, q) || v->ne[1] != k->ne[1] || v->ne[2] != k->ne[2]) return false;
  if (mask != nullptr && !is_mask(mask, q, k)) return false;
  for (const ggml_tensor* source : {q, k, v, mask}) {
    if (source != nullptr && !on_host(source)) return false;
  }
  return task_of(op).is_valid();
}

bool plan_attention(const ggml_tensor* op, int threads, std::size_t& scratch_bytes) {
  auto* noted = const_cast<ggml_tensor*>(op);  // NOLINT: the graph is this thread's, and upstream's own is not const
  ggml_set_op_params_i32(noted, kNoteAt, own_attention ? kOurs : 0);
  if (!own_attention) return false;
  scratch_bytes = scratch_of(task_of(op), threads) + kAlignment;
  return true;
}

bool run_attention(const ggml_compute_params* params, ggml_tensor* op) {
  if (ggml_get_op_params_i32(op, kNoteAt) != kOurs) return false;
  const Task task = task_of(op);
  const attention::KernelSet& kernels = attention::kernels();
  const auto address = reinterpret_cast<std::uintptr_t>(params->wdata);
  auto* scratch = reinterpret_cast<float*>((address + kAlignment - 1) / kAlignment * kAlignment);
  assert(params->wsize >= scratch_of(task, params->nth) + kAlignment);
  if (task.is_wide()) {
    float* own = scratch + static_cast<std::size_t>(params->ith) * task.wide_scratch_bytes() / sizeof(float);
    share(params, task.wide_items(), [&](std::int64_t item) { kernels.attend_wide(task, item, own); });
    return true;
  }
  share(params, task.items(), [&](std::int64_t item) { kernels.attend(task, item, scratch); });
  ggml_barrier(params->threadpool);
  for (std::int64_t i = params->ith; i < task.results(); i += params->nth) kernels.reduce(task, i, scratch);
  return true;
}

}  // namespace kazeia::tiles
