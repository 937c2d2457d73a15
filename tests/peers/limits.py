"""What a piece of work must at least read and compute, and so the rate that the machine's limits allow. Pure arithmetic.

Definitions, in the words of docs/bench.md:
  bytes       of a step: every weight matrix and vector once, in the sizes of the GGUF file, without the embedding table
              unless it is the output matrix, too; and the cached keys and values of all sequences, in 16 bits
  operations  2 for each weight of the matrices of the layers and each token, 2 for each weight of the output matrix and
              each token that is sampled, 4 · heads · head_dim · layers for each pair of a token and one that it attends to
"""
import dataclasses

INTEGER, BF16 = "int8_gop_per_second", "bf16_gflop_per_second"
FMA, READ = "fma_gflop_per_second", "read_gb_per_second"
KV_BYTES = 2  # of an element


@dataclasses.dataclass(frozen=True)
class Work:
    """`prefill512`: one prompt. `decode8`: `steps` steps of 8 sequences that begin with one token each."""
    name: str
    sequences: int
    tokens: int  # of the prompt, or steps

    @classmethod
    def parse(cls, name, decode_steps=128):
        for kind in ("prefill", "decode"):
            count = name.removeprefix(kind)
            if count != name and count.isdigit() and int(count) > 0:
                if kind == "prefill":
                    return cls(name, 1, int(count))
                return cls(name, int(count), decode_steps if int(count) == 1 else max(16, decode_steps // 4))
        raise ValueError(f'"{name}" is no work; write prefill512, decode1, decode8 or the like')

    @property
    def is_prefill(self):
        return self.name.startswith("prefill")

    @property
    def case(self):
        """In the words of `quire bench model`."""
        return f"prefill {self.tokens}" if self.is_prefill else f"decode {self.tokens} {self.sequences}"


@dataclasses.dataclass(frozen=True)
class ModelCost:
    """What `quire inspect --json` says of a model, summed up."""
    layer_bytes: int       # all tensors but the two below
    layer_parameters: int  # of those, matrices only
    head_bytes: int        # the output matrix, which may be the embedding table
    head_parameters: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int

    @classmethod
    def of(cls, inspected):
        tensors = {tensor["name"]: tensor for tensor in inspected["tensors"]}
        head = tensors.get("output.weight") or tensors.get("token_embd.weight")
        if head is None:
            raise ValueError("the file has neither output.weight nor token_embd.weight: it is no GGUF model")
        rest = [tensor for name, tensor in tensors.items() if name not in ("output.weight", "token_embd.weight")]
        count = lambda tensor: tensor["shape"][0] * tensor["shape"][1]
        config = inspected["config"]
        return cls(layer_bytes=sum(tensor["bytes"] for tensor in rest),
                   layer_parameters=sum(count(tensor) for tensor in rest if len(tensor["shape"]) == 2),
                   head_bytes=head["bytes"], head_parameters=count(head), layers=config["num_layers"],
                   heads=config["num_heads"], kv_heads=config["num_kv_heads"], head_dim=config["head_dim"])

    @property
    def kv_bytes_per_token(self):
        return 2 * KV_BYTES * self.layers * self.kv_heads * self.head_dim

    @property
    def operations_per_pair(self):
        """Of a token and one that it attends to: a product with the key, and one with the value."""
        return 4 * self.layers * self.heads * self.head_dim


def describe(machine):
    return (f"read {machine[READ]:.1f} GB/s, INT8 {machine[INTEGER]:.0f} GOP/s, BF16 {machine[BF16]:.0f} GFLOP/s, "
            f"FP32 {machine[FMA]:.0f} GFLOP/s")


def mean_context(work):
    """Tokens that a step of generation attends to, itself among them: 2 in the first, one more in each."""
    return (work.tokens + 3) / 2


def bytes_of(cost, work):
    """Of a whole prompt, or of one step."""
    context = work.tokens if work.is_prefill else work.sequences * mean_context(work)
    return cost.layer_bytes + cost.head_bytes + context * cost.kv_bytes_per_token


def operations_of(cost, work):
    """Of a whole prompt, or of one step. Each token of a prompt attends to itself and those before it."""
    tokens = work.tokens if work.is_prefill else work.sequences
    pairs = work.tokens * (work.tokens + 1) / 2 if work.is_prefill else work.sequences * mean_context(work)
    return 2 * cost.layer_parameters * tokens + 2 * cost.head_parameters * work.sequences + pairs * cost.operations_per_pair


def peak_of(machine, file_type):
    """Operations a second of the vector units that can compute this type: 16-bit weights cannot use the integer ones."""
    if file_type in ("F32", "F16"):
        return machine[FMA] * 1e9
    if file_type == "BF16":
        return max(machine[BF16], machine[FMA]) * 1e9  # weights may be widened to FP32
    return machine[INTEGER] * 1e9


def limit(cost, work, machine, file_type):
    """Tokens a second that the machine allows: `machine` is a line of `quire bench roofline --json`. Prompts are bound by
    the dot products, one sequence by the bandwidth, several sequences by the tighter of the two."""
    compute = operations_of(cost, work) / peak_of(machine, file_type)
    memory = bytes_of(cost, work) / (machine[READ] * 1e9)
    if work.is_prefill:
        return work.tokens / compute
    return work.sequences / (memory if work.sequences == 1 else max(compute, memory))
