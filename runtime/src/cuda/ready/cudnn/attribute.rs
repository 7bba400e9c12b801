//! Attributes of descriptors, by the names of the library without what all of these have before them.

use super::{
    Handle,
    descriptor::{
        Attribute, Correlation, Data, Descriptor, Mode, Note, Operator, Search,
    },
};
use std::ffi::c_void;

pub(super) const POINTWISE_MODE: Attribute<Mode> = Attribute::new(0);
pub(super) const POINTWISE_MATH_PREC: Attribute<Data> = Attribute::new(1);
pub(super) const POINTWISE_AXIS: Attribute<i64> = Attribute::new(9);
pub(super) const CONVOLUTION_COMP_TYPE: Attribute<Data> = Attribute::new(100);
pub(super) const CONVOLUTION_CONV_MODE: Attribute<Correlation> = Attribute::new(101);
pub(super) const CONVOLUTION_DILATIONS: Attribute<i64> = Attribute::new(102);
pub(super) const CONVOLUTION_FILTER_STRIDES: Attribute<i64> = Attribute::new(103);
pub(super) const CONVOLUTION_POST_PADDINGS: Attribute<i64> = Attribute::new(104);
pub(super) const CONVOLUTION_PRE_PADDINGS: Attribute<i64> = Attribute::new(105);
pub(super) const CONVOLUTION_SPATIAL_DIMS: Attribute<i64> = Attribute::new(106);
pub(super) const ENGINEHEUR_MODE: Attribute<Search> = Attribute::new(200);
pub(super) const ENGINEHEUR_OPERATION_GRAPH: Attribute<Descriptor> = Attribute::new(201);
pub(super) const ENGINEHEUR_RESULTS: Attribute<Descriptor> = Attribute::new(202);
pub(super) const ENGINECFG_ENGINE: Attribute<Descriptor> = Attribute::new(300);
pub(super) const EXECUTION_PLAN_HANDLE: Attribute<Handle> = Attribute::new(400);
pub(super) const EXECUTION_PLAN_ENGINE_CONFIG: Attribute<Descriptor> =
    Attribute::new(401);
pub(super) const EXECUTION_PLAN_WORKSPACE_SIZE: Attribute<i64> = Attribute::new(402);
pub(super) const OPERATION_POINTWISE_PW_DESCRIPTOR: Attribute<Descriptor> =
    Attribute::new(750);
pub(super) const OPERATION_POINTWISE_XDESC: Attribute<Descriptor> = Attribute::new(751);
pub(super) const OPERATION_POINTWISE_BDESC: Attribute<Descriptor> = Attribute::new(752);
pub(super) const OPERATION_POINTWISE_YDESC: Attribute<Descriptor> = Attribute::new(753);
pub(super) const OPERATION_POINTWISE_TDESC: Attribute<Descriptor> = Attribute::new(758);
pub(super) const OPERATIONGRAPH_HANDLE: Attribute<Handle> = Attribute::new(800);
pub(super) const OPERATIONGRAPH_OPS: Attribute<Descriptor> = Attribute::new(801);
pub(super) const TENSOR_BYTE_ALIGNMENT: Attribute<i64> = Attribute::new(900);
pub(super) const TENSOR_DATA_TYPE: Attribute<Data> = Attribute::new(901);
pub(super) const TENSOR_DIMENSIONS: Attribute<i64> = Attribute::new(902);
pub(super) const TENSOR_STRIDES: Attribute<i64> = Attribute::new(903);
pub(super) const TENSOR_UNIQUE_ID: Attribute<i64> = Attribute::new(906);
pub(super) const TENSOR_IS_VIRTUAL: Attribute<bool> = Attribute::new(907);
pub(super) const TENSOR_IS_BY_VALUE: Attribute<bool> = Attribute::new(908);
pub(super) const VARIANT_PACK_UNIQUE_IDS: Attribute<i64> = Attribute::new(1000);
pub(super) const VARIANT_PACK_DATA_POINTERS: Attribute<*const c_void> =
    Attribute::new(1001);
pub(super) const VARIANT_PACK_WORKSPACE: Attribute<*const c_void> = Attribute::new(1003);
pub(super) const ENGINE_GLOBAL_INDEX: Attribute<i64> = Attribute::new(1301);
pub(super) const ENGINE_NUMERICAL_NOTE: Attribute<Note> = Attribute::new(1303);
pub(super) const MATMUL_COMP_TYPE: Attribute<Data> = Attribute::new(1500);
pub(super) const OPERATION_MATMUL_ADESC: Attribute<Descriptor> = Attribute::new(1520);
pub(super) const OPERATION_MATMUL_BDESC: Attribute<Descriptor> = Attribute::new(1521);
pub(super) const OPERATION_MATMUL_CDESC: Attribute<Descriptor> = Attribute::new(1522);
pub(super) const OPERATION_MATMUL_DESC: Attribute<Descriptor> = Attribute::new(1523);
pub(super) const REDUCTION_OPERATOR: Attribute<Operator> = Attribute::new(1600);
pub(super) const REDUCTION_COMP_TYPE: Attribute<Data> = Attribute::new(1601);
pub(super) const OPERATION_REDUCTION_XDESC: Attribute<Descriptor> = Attribute::new(1610);
pub(super) const OPERATION_REDUCTION_YDESC: Attribute<Descriptor> = Attribute::new(1611);
pub(super) const OPERATION_REDUCTION_DESC: Attribute<Descriptor> = Attribute::new(1612);

/// Of devices that are described.
#[cfg(test)]
pub(super) const ENGINEHEUR_DEVICEPROP: Attribute<Descriptor> = Attribute::new(204);
#[cfg(test)]
pub(super) const EXECUTION_PLAN_DEVICEPROP: Attribute<Descriptor> = Attribute::new(407);
#[cfg(test)]
pub(super) const DEVICEPROP_JSON_REPRESENTATION: Attribute<u8> = Attribute::new(2702);
