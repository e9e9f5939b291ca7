# Completions and verdicts are separate files: a change of the grader re-grades without sampling anew. Shards of a job
# that was killed lie under state/, undeclared, until it ends.
rule sample:
    input:
        config=lambda wildcards: f"{ROOT}/config/evaluation-{model_of(wildcards.policy)}.yaml",
        model=evaluated_model,
        benchmarks=BENCHMARKS,
        prompts=evaluated_prompts,
    output:
        f"{ROOT}/{{policy}}/{{evaluation}}/completions.parquet",
        f"{ROOT}/{{policy}}/{{evaluation}}/protocol.json",
    log:
        f"{ROOT}/logs/sample/{{policy}}/{{evaluation}}.log",
    benchmark:
        f"{ROOT}/benchmarks/sample/{{policy}}/{{evaluation}}.tsv"
    wildcard_constraints:
        evaluation="evaluation|evaluation_best",
    conda:
        "../../envs/gpu.yaml" if GPUS else "../../envs/cpu.yaml"
    threads: THREADS
    resources:
        mem_mb=MEMORY,
        runtime=LONG,
        gpu=SAMPLING_GPUS,
    params:
        out=output_folder,
        code=code_digest(
            *SAMPLING,
            "ebpo/evaluation/protocol.py",
            "ebpo/evaluation/sampling.py",
            "scripts/sample.py",
        ),
    shell:
        "python scripts/sample.py --config {input.config} --policy {input.model} --benchmarks {input.benchmarks} "
        "--prompts {input.prompts} --out {params.out} 2>&1 | tee {log}"


rule grade:
    input:
        config=lambda wildcards: f"{ROOT}/config/evaluation-{model_of(wildcards.policy)}.yaml",
        completions=f"{ROOT}/{{policy}}/{{evaluation}}/completions.parquet",
        protocol=f"{ROOT}/{{policy}}/{{evaluation}}/protocol.json",
        benchmarks=BENCHMARKS,
    output:
        f"{ROOT}/{{policy}}/{{evaluation}}/graded.parquet",
        f"{ROOT}/{{policy}}/{{evaluation}}/per_problem.csv",
        f"{ROOT}/{{policy}}/{{evaluation}}/scores.csv",
        f"{ROOT}/{{policy}}/{{evaluation}}/record.json",
        f"{ROOT}/{{policy}}/{{evaluation}}/examples.jsonl",
    log:
        f"{ROOT}/logs/grade/{{policy}}/{{evaluation}}.log",
    benchmark:
        f"{ROOT}/benchmarks/grade/{{policy}}/{{evaluation}}.tsv"
    wildcard_constraints:
        evaluation="evaluation|evaluation_best",
    conda:
        "../../envs/cpu.yaml"
    threads: 1
    resources:
        mem_mb=MEMORY,
        runtime=more(60),
    params:
        out=output_folder,
        identity=evaluated_identity,
        code=code_digest(
            *FOUNDATION,
            "ebpo/evaluation/classes.py",
            "ebpo/evaluation/estimators.py",
            "ebpo/evaluation/examples.py",
            "ebpo/evaluation/intervals.py",
            "ebpo/evaluation/protocol.py",
            "ebpo/evaluation/scoring.py",
            "ebpo/grading",
            "scripts/grade.py",
        ),
    shell:
        "python scripts/grade.py --config {input.config} --completions {input.completions} "
        "--benchmarks {input.benchmarks} --identity {params.identity:q} --out {params.out} 2>&1 | tee {log}"
