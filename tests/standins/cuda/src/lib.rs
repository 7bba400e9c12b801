//! Stand-ins for `libcuda`, `libnvrtc`, `libcublasLt`, `libcudnn` and `libnccl`, on host memory: for
//! tests of whoever calls these libraries, on machines without a GPU.
//!
//! One shared object has the symbols of all five; a test gives it their names. What would be
//! undefined or forbidden on a GPU ends the process with exit code 97 and a sentence on standard
//! error. Streams are asynchronous: what they are given is done as late, or in as random an
//! order, as their waits allow. Kernels are compiled by the system's C++ compiler with the
//! emulation of `kernels/cuda/host`.
//!
//! | variable | meaning |
//! | --- | --- |
//! | `STANDIN_CUDA_ORDER` | `early`: at once; `late`: when somebody waits for it, newest first; a number: in an order drawn with this seed |
//! | `STANDIN_CUDA_DEVICES` | number of devices, 2 unless said |
//! | `STANDIN_CUDA_DRIVER` | version of the driver, 13000 unless said |
//! | `STANDIN_CUDA_MEMORY` | bytes of a device, 1 GiB unless said |
//! | `STANDIN_CUDA_MAPS` | `no`: addresses cannot be reserved |
//! | `STANDIN_CUDA_FORGET` | number of a wait between streams that is not kept |
//! | `STANDIN_CUDA_FAIL` | a kernel launch at which the device fails: its number, or `NAME:NUMBER` among those of functions whose names contain this; with `/CALLS` behind it the launch never ends, and this many more calls are answered before one hears of the failure |
//! | `STANDIN_CUDA_HANG` | a kernel launch that never ends, named in the same way |
//! | `STANDIN_CUDA_PRODUCTS` | `refuse`: the library of products has no algorithm; `fail`: it has, and refuses what it is given |
//! | `STANDIN_CUDA_REFUSE` | number of a launch of a graph that the driver has no memory for |
//! | `STANDIN_CUDA_ALGORITHMS` | algorithms that are offered for each product, 1 unless said |
//! | `STANDIN_CUDA_FASTEST` | place of the one of several that is the fastest, from 0; 2 unless said |
//! | `STANDIN_CUDA_GELUS` | `slow`: products with a GELU take a long time |
//! | `STANDIN_CUDA_SUMS` | of sums beside products: `slow` (products with them take a long time), `short` (parts of them are rounded to 16 bits), `refuse` (there are none) |
//! | `STANDIN_CUDA_SLOW` | functions whose names contain this take a long time; several, separated by commas |
//! | `STANDIN_CUDA_SLOW_FOR` | how many milliseconds these take besides, 4 unless said |
//! | `STANDIN_CUDA_CLOCK` | events keep the time of a clock on which things take as long as is said here, not of the system's: `NAME=DEVICE/HOST` in microseconds of the device and of the host, separated by commas; the first name that is part of a function's, of `product-PLACE` or of `engine-NAME` counts, and `event` for events that keep the time, which take none unless it is said; all others take 100 and 1 |
//! | `STANDIN_CUDA_DRIFT` | on that clock: `rising` (the device takes three times as long until it has worked for 3.2 ms), `swaying` (with every 50 ms of work it comes to take e times as long, after half a second e times as short, and so on) |
//! | `STANDIN_CUDA_UNRECORDED` | what refuses while a stream records it: `product-PLACE`, `engine-NAME` or functions, separated by commas |
//! | `STANDIN_CUDA_OBJECTS` | folder that keeps what the C++ compiler made, from one process to the next; without one, or where `CXX` names a compiler, nothing is kept |
//! | `STANDIN_CUDA_COUNTS` | file that gets what was counted, when a context is released |
//! | `STANDIN_CUDNN_VERSION` | version of cuDNN, 91000 unless said |
//! | `STANDIN_CUDNN_OFFERS` | engines that it offers for every graph, in order, separated by commas: `fast` (unless said), `slow`, `drifting` (other bits every time, as it says itself), `wrong` (other numbers), `torn` (all but the last number), `roomy` (33 MiB of memory), `large` (too much memory), `short` (shortens numbers), `winograd` (loses digits), `failing` (refuses) |
//! | `STANDIN_CUDNN_SLOW` | which of these take a long time, `slow` unless said |
//! | `STANDIN_NCCL_VERSION` | version of NCCL, 22809 unless said |
//! | `STANDIN_NCCL_SENDS` | `eager`: a message is sent at once; else it is read when the other rank takes it |
//! | `STANDIN_NCCL_STALL` | number of a group of messages that never moves on this rank |
//! | `STANDIN_NCCL_ABORT` | `never`: an abort does not end |
//! | `STANDIN_NCCL_CORRUPT` | number of a message that arrives with another bit |
//! | `STANDIN_NCCL_TAKES` | bytes of its device that NCCL takes for each rank that it connects with, none unless said |
//! | `STANDIN_NCCL_DEATHS` | `silent`: that another rank is gone is not noticed |
#![expect(unsafe_code, reason = "these are C libraries")]

mod algorithms;
mod backlog;
mod batches;
mod capture;
mod clock;
mod contexts;
mod convolutions;
mod cudnn;
mod descriptors;
mod driver;
mod events;
mod exchange;
mod graphs;
mod kernels;
mod launches;
mod mapping;
mod matrices;
mod memory;
mod mesh;
mod nccl;
mod numbers;
mod nvrtc;
#[path = "../../../../kernels/tests/cuda/emulation/objects.rs"]
mod objects;
mod products;
mod random;
mod settings;
mod sums;
mod work;
mod world;

use std::process;

/// Ends the process because of something that is undefined or forbidden on a GPU.
fn forbid(what: &str) -> ! {
    let said = format!("stand-in for CUDA: {what}\n");
    // SAFETY: bytes of a live text are written to standard error.
    unsafe { libc::write(2, said.as_ptr().cast(), said.len()) };
    process::exit(97)
}
