"""What readers search for, and where it is: committed before the search was changed."""

# an item of the paper, or a name of the package -> where it stands: the first result
EXACT = {
    "theorem 1": "theory/theorem.html#theorem-1",
    "Theorem 3": "theory/proof.html#theorem-3",
    "lemma 5": "theory/proof.html#lemma-5",
    "Lemma 9": "theory/score_clt.html#lemma-9",
    "lemma 16": "theory/score_clt.html#lemma-16",
    "lemma 17": "theory/proof.html#lemma-17",
    "proposition 6": "theory/pseudo_lipschitz.html#proposition-6",
    "proposition 8": "theory/score_clt.html#proposition-8",
    "corollary 2": "theory/theorem.html#corollary-2",
    "definition 1": "netsor/infinite_width.html#definition-1",
    "definition 2": "theory/pseudo_lipschitz.html#definition-2",
    "assumption 1": "netsor/program.html#assumption-1",
    "fact 4": "theory/pseudo_lipschitz.html#fact-4",
    "figure 1": "paper/figures.html#fig-1a",
    "figure 2": "paper/figures.html#fig-2a",
    "Figure 2(B)": "paper/figures.html#fig-2b",
    "HierarchicalGaussian": "api/hierarchicalgaussian.html",
    "Attention.law": "api/attention.html#attention.law",
    "paired_kl": "convergence/distances.html#paired_kl",
    "rate_transfer": "huggingface/transfer.html#rate_transfer",
    "from_config": "huggingface/read.html#from_config",
    "Muon": "api/muon.html",
}

# a word, or the title of a public question -> pages, one of them among the first two
ASKED = {
    "bibtex": "index",
    "moe": "transformer/experts",
    "mixture of experts": "transformer/experts theory/scores_decide",
    "mamba": "scope huggingface/module",
    "tutorial": "index essay",
    "lora": "transformer/fine_tuning transformer/adapters",
    "low rank": "transformer/adapters transformer/fine_tuning attention/spec "
    "attention/layer paper/figures theory/trained_layer",
    "0.02": "initialisation/gpt2 initialisation/your_model initialisation/rules "
    "huggingface/weights",
    "exchangeable": "theory/score_clt",
    "Gram matrix": "attention/tokens essay transformer/network theory/score_clt",
    "excess kurtosis": "distributions/hierarchical convergence/regimes essay",
    "random kernel": "index essay transformer/network distributions/hierarchical",
    # github.com/google/neural-tangents, issues 117, 131, 132 and 197
    "Softmax layers?": "attention/layer nonlinearities numerics/softmax",
    "What's the prediction of wide networks? Is it deterministic?": "theory/theorem "
    "essay theory/what_follows learning/regressor",
    "Question about Standard Parameterization": "training/train_your_model "
    "huggingface/transfer training/optimizers",
    "infinite regime when weights are drawn with high standard deviation": "essay "
    "convergence/regimes convergence/long_sequences attention/layer",
    # ai.stackexchange.com, question 30491; datascience.stackexchange.com, 126601
    "proper initialization technique for the weight matrices in multi-head attention": (
        "initialisation/which_initialisation initialisation/rules recipes "
        "initialisation/your_model"
    ),
    "Why use a square root in the scaled dot product": "convergence/regimes essay "
    "attention/layer",
}

# what nothing here is about: no result, but the nearest page
NOTHING = (
    "edge of chaos",
    "theorem 99",
    "chocolate cake",
    "qwertyuiop",
    "protein folding benchmark",
)

# earlier queries -> pages, one of them among the first two
STUDENT = {
    "rank collapse": "transformer/network transformer/gradients",
    "signal propagation": "transformer/network",
    "tensor programs": "netsor/program",
    "what is a hierarchical Gaussian": "distributions/hierarchical",
    "why is attention not Gaussian": "essay index convergence/regimes",
    "infinitely many heads": "convergence/regimes paper/figures attention/layer",
    "neural tangent kernel": "transformer/gradients initialisation/gpt2",
    "induction heads": "learning/circuits",
    "Lemma 18": "theory/proof reference/paper_map",
    "random energy model": "convergence/long_sequences",
}
ENGINEER = {
    "cite": "index reference/ours",
    "Hugging Face config": "initialisation/your_model initialisation/report recipes",
    "prediction intervals": "recipes learning/regressor",
    "how wide is wide enough": "recipes convergence/regimes convergence/rates",
    "PyTorch MultiheadAttention": "recipes convergence/regimes",
    "better initialisation": "initialisation/which_initialisation initialisation/scan",
    "rotary positions": "transformer/block",
    "API": "api/index",
    "learning rate transfer": "training/train_your_model theory/what_follows",
}
