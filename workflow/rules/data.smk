rule problems:
    input:
        config=f"{ROOT}/config/data.yaml",
    output:
        f"{ROOT}/data/train.parquet",
        f"{ROOT}/data/validation.parquet",
        [
            f"{ROOT}/data/benchmarks/{name}.parquet"
            for name in EXPERIMENT.data.benchmarks
        ],
        manifest=f"{ROOT}/data/manifest.json",
    log:
        f"{ROOT}/logs/problems.log",
    benchmark:
        f"{ROOT}/benchmarks/problems.tsv"
    conda:
        "../../envs/cpu.yaml"
    threads: 1
    resources:
        mem_mb=MEMORY,
        runtime=30,
    params:
        out=output_folder,
        code=code_digest(
            *FOUNDATION, "ebpo/problems", "ebpo/grading", "scripts/problems.py"
        ),
    shell:
        "python scripts/problems.py --config {input.config} --out {params.out} 2>&1 | tee {log}"
