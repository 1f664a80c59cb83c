#include "emulated_dsp/records.h"

namespace kazeia::emulated_dsp {

const char* op_name(std::uint32_t opcode) {
#define NAME(op)    \
  case HTP_OP_##op: \
    return #op
  switch (opcode) {
    NAME(MUL);
    NAME(ADD);
    NAME(SUB);
    NAME(DIV);
    NAME(MUL_MAT);
    NAME(MUL_MAT_ID);
    NAME(MUL_MAT_NX);
    NAME(MUL_MAT_ID_NX);
    NAME(MUL_MAT_ADD);
    NAME(RMS_NORM);
    NAME(RMS_NORM_MUL);
    NAME(UNARY_SILU);
    NAME(UNARY_GELU);
    NAME(UNARY_SIGMOID);
    NAME(UNARY_EXP);
    NAME(UNARY_NEG);
    NAME(UNARY_SOFTPLUS);
    NAME(UNARY_TANH);
    NAME(UNARY_ABS);
    NAME(UNARY_LOG);
    NAME(UNARY_RELU);
    NAME(GLU_SWIGLU);
    NAME(GLU_SWIGLU_OAI);
    NAME(GLU_GEGLU);
    NAME(GLU_GEGLU_QUICK);
    NAME(SOFTMAX);
    NAME(ADD_ID);
    NAME(ROPE);
    NAME(FLASH_ATTN_EXT);
    NAME(SET_ROWS);
    NAME(GET_ROWS);
    NAME(SCALE);
    NAME(CPY);
    NAME(CPY_FENCE);
    NAME(ARGSORT);
    NAME(TOP_K);
    NAME(SQR);
    NAME(SQRT);
    NAME(SUM_ROWS);
    NAME(SSM_CONV);
    NAME(REPEAT);
    NAME(CUMSUM);
    NAME(FILL);
    NAME(DIAG);
    NAME(SOLVE_TRI);
    NAME(L2_NORM);
    NAME(GATED_DELTA_NET);
    NAME(TRI);
    NAME(PAD);
    NAME(NORM);
    NAME(CONCAT);
    NAME(CLAMP);
    NAME(LEAKY_RELU);
    NAME(IM2COL);
    NAME(FENCE);
    NAME(ALLREDUCE);
    NAME(ALLREDUCE_ADD);
    NAME(GLU_SWIGLU_CLAMP);
    NAME(MDEV_GROUP);
    NAME(ROLL);
    default:
      return "?";
  }
#undef NAME
}

}  // namespace kazeia::emulated_dsp
