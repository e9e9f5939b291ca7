# The paper's theorems as simulations: no experiment is read, so these files are the same for every configuration.
THEORY = "results/theory"
if ROOT == THEORY:
    print("experiment: 'theory' is the folder of the theory", file=sys.stderr)
    sys.exit(1)

THEORY_TABLES = [
    "theorems",
    "penalty",
    "saturated",
    "baseline_mse",
    "shrinkage",
    "conditional_mse",
    "counter_examples",
    "convergence",
    "short_history",
    "entropy_premises",
    "entropy_weights",
    "entropy_one_step",
    "entropy_training",
    "clustering",
    "clustering_curves",
    "clustering_known",
    "clustering_topics",
    "drift",
    "drift_curves",
    "half_life",
    "gradient",
    "gradient_simulated",
    "gradient_history",
]
THEORY_FIGURES = [
    "penalty",
    "baseline_mse",
    "shrinkage",
    "convergence",
    "entropy",
    "entropy_weights",
    "clustering",
    "drift",
    "gradient",
]
THEORY_FILES = [
    *(f"{THEORY}/{name}.csv" for name in THEORY_TABLES),
    f"{THEORY}/facts.json",
    *(
        f"{THEORY}/figures/{name}.{suffix}"
        for name in THEORY_FIGURES
        for suffix in ("svg", "png")
    ),
]


rule theory:
    output:
        THEORY_FILES,
    log:
        f"{THEORY}/theory.log",
    benchmark:
        f"{THEORY}/benchmark.tsv"
    conda:
        "../../envs/cpu.yaml"
    threads: 1
    resources:
        mem_mb=more(2000),
        runtime=more(10),
    params:
        out=output_folder,
        code=code_digest(
            "ebpo/theory",
            "ebpo/algorithms",
            "ebpo/files.py",
            "ebpo/seeds.py",
            "ebpo/reporting/style.py",
            "ebpo/reporting/labels.py",
            "ebpo/reporting/theory_figures.py",
            "scripts/theory.py",
        ),
    shell:
        "python scripts/theory.py --out {params.out} 2>&1 | tee {log}"
