from ebpo.problems.locations import local_files


rule problems:
    input:
        local_files(EXPERIMENT.data),
        config=f"{ROOT}/config/data.yaml",
    output:
        f"{ROOT}/data/train.parquet",
        f"{ROOT}/data/validation.parquet",
        [
            f"{ROOT}/data/benchmarks/{name}.parquet"
            for name in EXPERIMENT.data.benchmarks
        ],
        removed=f"{ROOT}/data/removed.csv",
        contamination=f"{ROOT}/data/contamination.csv",
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
        runtime=more(30),
    params:
        out=output_folder,
        code=code_digest(
            *FOUNDATION,
            "ebpo/problems",
            "ebpo/prompts.py",
            "ebpo/grading",
            "scripts/problems.py",
        ),
    shell:
        "python scripts/problems.py --config {input.config} --out {params.out} 2>&1 | tee {log}"


# Every problem is rendered once per model. Training, measurement of difficulty and evaluation read these token ids.
rule prompts:
    input:
        config=f"{ROOT}/config/prompts-{{model}}.yaml",
        policy=f"{ROOT}/base/{{model}}/policy.json",
        weights=ancient(f"{ROOT}/base/{{model}}/model"),
        train=f"{ROOT}/data/train.parquet",
        validation=f"{ROOT}/data/validation.parquet",
        benchmarks=BENCHMARKS,
    output:
        train=f"{ROOT}/base/{{model}}/prompts/train.parquet",
        validation=f"{ROOT}/base/{{model}}/prompts/validation.parquet",
        benchmarks=[
            f"{ROOT}/base/{{model}}/prompts/benchmarks/{name}.parquet"
            for name in EXPERIMENT.evaluation.benchmarks
        ],
        summary=f"{ROOT}/base/{{model}}/prompts/prompts.json",
    log:
        f"{ROOT}/logs/prompts/{{model}}.log",
    benchmark:
        f"{ROOT}/benchmarks/prompts/{{model}}.tsv"
    conda:
        "../../envs/cpu.yaml"
    threads: 1
    resources:
        mem_mb=MEMORY,
        runtime=more(30),
    params:
        out=output_folder,
        code=code_digest(*FOUNDATION, "ebpo/prompts.py", "scripts/prompts.py"),
    shell:
        "python scripts/prompts.py --config {input.config} --policy {input.weights} --train {input.train} "
        "--validation {input.validation} --benchmarks {input.benchmarks} --out {params.out} 2>&1 | tee {log}"
