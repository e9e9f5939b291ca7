# Completions and verdicts are separate files: a change of the grader re-grades without sampling anew.
rule sample:
    input:
        config=lambda wildcards: f"{ROOT}/config/evaluation-{model_of(wildcards.policy)}.yaml",
        model=f"{ROOT}/{{policy}}/model",
        benchmarks=BENCHMARKS,
    output:
        f"{ROOT}/{{policy}}/evaluation/completions.parquet",
    log:
        f"{ROOT}/logs/sample/{{policy}}.log",
    benchmark:
        f"{ROOT}/benchmarks/sample/{{policy}}.tsv"
    conda:
        "../../envs/gpu.yaml" if GPUS else "../../envs/cpu.yaml"
    threads: THREADS
    resources:
        mem_mb=MEMORY,
        runtime=EXPERIMENT.resources.train_minutes,
        gpu=GPUS,
    params:
        code=code_digest(*SAMPLING, "ebpo/evaluation/sampling.py", "scripts/sample.py"),
    shell:
        "python scripts/sample.py --config {input.config} --policy {input.model} --benchmarks {input.benchmarks} "
        "--out {output} 2>&1 | tee {log}"


rule grade:
    input:
        config=lambda wildcards: f"{ROOT}/config/evaluation-{model_of(wildcards.policy)}.yaml",
        completions=f"{ROOT}/{{policy}}/evaluation/completions.parquet",
        benchmarks=BENCHMARKS,
    output:
        f"{ROOT}/{{policy}}/evaluation/graded.parquet",
        f"{ROOT}/{{policy}}/evaluation/per_problem.csv",
        f"{ROOT}/{{policy}}/evaluation/scores.csv",
    log:
        f"{ROOT}/logs/grade/{{policy}}.log",
    benchmark:
        f"{ROOT}/benchmarks/grade/{{policy}}.tsv"
    conda:
        "../../envs/cpu.yaml"
    threads: 1
    resources:
        mem_mb=MEMORY,
        runtime=60,
    params:
        out=output_folder,
        identity=lambda wildcards: identity_of(wildcards.policy),
        code=code_digest(
            *FOUNDATION,
            "ebpo/evaluation/scoring.py",
            "ebpo/grading",
            "scripts/grade.py",
        ),
    shell:
        "python scripts/grade.py --config {input.config} --completions {input.completions} "
        "--benchmarks {input.benchmarks} --identity {params.identity:q} --out {params.out} 2>&1 | tee {log}"
