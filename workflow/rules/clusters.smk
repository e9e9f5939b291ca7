TOPICS = {
    "table": f"{ROOT}/clusters/topics.parquet",
    "quality": f"{ROOT}/clusters/topics.json",
    "confusion": f"{ROOT}/clusters/topics_confusion.csv",
}
DIFFICULTIES = [
    f"{ROOT}/clusters/{model}/difficulty.parquet" for model in EXPERIMENT.models
]
SHARDS = EXPERIMENT.difficulty.shards
CLUSTER_FIGURES = [
    f"{ROOT}/figures/{name}.{suffix}"
    for name in ("topics", "difficulty")
    for suffix in ("svg", "png")
]
# Of all experiments: the same model, prompts and sampling are sampled once.
COMPLETIONS = "results/cache/difficulty"
LABELLER = EXPERIMENT.topics.llm if EXPERIMENT.topics.method == "llm" else None
LABELS_ON_GPU = LABELLER is not None and LABELLER.device == "cuda"


rule topics:
    input:
        config=f"{ROOT}/config/topics.yaml",
        problems=f"{ROOT}/data/train.parquet",
    output:
        **TOPICS,
    log:
        f"{ROOT}/logs/topics.log",
    benchmark:
        f"{ROOT}/benchmarks/topics.tsv"
    conda:
        "../../envs/gpu.yaml" if LABELS_ON_GPU else "../../envs/cpu.yaml"
    threads: THREADS
    resources:
        mem_mb=MEMORY,
        runtime=LONG if LABELLER else more(60),
        gpu=1 if LABELS_ON_GPU else 0,
    params:
        code=code_digest(
            *FOUNDATION,
            "ebpo/clustering/topics.py",
            "ebpo/clustering/embedding.py",
            "ebpo/clustering/zero_shot.py",
            "ebpo/clustering/kmeans.py",
            "ebpo/clustering/naming.py",
            "ebpo/clustering/llm_labels.py",
            "ebpo/clustering/quality.py",
            "scripts/topics.py",
        ),
    shell:
        "python scripts/topics.py --config {input.config} --problems {input.problems} --threads {threads} "
        "--out {output.table} 2>&1 | tee {log}"


# Completions are kept in the cache, undeclared, block by block: a job that was killed goes on where it was, and a
# change of the grader or of the number of shards samples nothing anew.
rule difficulty_shard:
    input:
        config=f"{ROOT}/config/difficulty-{{model}}.yaml",
        policy=f"{ROOT}/base/{{model}}/policy.json",
        weights=ancient(f"{ROOT}/base/{{model}}/model"),
        problems=f"{ROOT}/data/train.parquet",
        prompts=f"{ROOT}/base/{{model}}/prompts/train.parquet",
        preflight=PREFLIGHT,
    output:
        f"{ROOT}/clusters/{{model}}/difficulty/{{shard}}-of-{SHARDS}.parquet",
    log:
        f"{ROOT}/logs/difficulty/{{model}}/{{shard}}.log",
    benchmark:
        f"{ROOT}/benchmarks/difficulty/{{model}}/{{shard}}.tsv"
    wildcard_constraints:
        shard=r"\d+",
    priority: 20
    conda:
        "../../envs/gpu.yaml" if GPUS else "../../envs/cpu.yaml"
    threads: THREADS
    resources:
        mem_mb=MEMORY,
        runtime=LONG,
        gpu=SAMPLING_GPUS,
    params:
        cache=COMPLETIONS,
        code=code_digest(
            *SAMPLING,
            "ebpo/clustering/completions.py",
            "ebpo/clustering/difficulty.py",
            "ebpo/grading",
            "scripts/difficulty_shard.py",
        ),
    shell:
        "python scripts/difficulty_shard.py --config {input.config} --policy {input.weights} "
        "--manifest {input.policy} --problems {input.problems} --prompts {input.prompts} --shard {wildcards.shard} "
        "--cache {params.cache} --out {output} 2>&1 | tee {log}"


rule difficulty:
    input:
        config=f"{ROOT}/config/difficulty-{{model}}.yaml",
        prompts=f"{ROOT}/base/{{model}}/prompts/train.parquet",
        shards=expand(
            f"{ROOT}/clusters/{{{{model}}}}/difficulty/{{shard}}-of-{SHARDS}.parquet",
            shard=range(SHARDS),
        ),
    output:
        table=f"{ROOT}/clusters/{{model}}/difficulty.parquet",
        summary=f"{ROOT}/clusters/{{model}}/difficulty.json",
    log:
        f"{ROOT}/logs/difficulty/{{model}}.log",
    benchmark:
        f"{ROOT}/benchmarks/difficulty/{{model}}.tsv"
    priority: 20
    conda:
        "../../envs/cpu.yaml"
    threads: 1
    resources:
        mem_mb=MEMORY,
        runtime=more(10),
    params:
        code=code_digest(
            *FOUNDATION,
            "ebpo/prompts.py",
            "ebpo/clustering/beta_binomial.py",
            "ebpo/clustering/difficulty.py",
            "scripts/difficulty.py",
        ),
    shell:
        "python scripts/difficulty.py --config {input.config} --prompts {input.prompts} --shards {input.shards} "
        "--out {output.table} 2>&1 | tee {log}"


rule cluster_figures:
    input:
        **TOPICS,
        difficulty=DIFFICULTIES,
        summaries=[path.replace(".parquet", ".json") for path in DIFFICULTIES],
    output:
        CLUSTER_FIGURES,
    log:
        f"{ROOT}/logs/cluster_figures.log",
    benchmark:
        f"{ROOT}/benchmarks/cluster_figures.tsv"
    conda:
        "../../envs/report.yaml"
    threads: 1
    resources:
        mem_mb=more(1000),
        runtime=more(10),
    params:
        out=output_folder,
        models=list(EXPERIMENT.models),
        code=code_digest(
            "ebpo/reporting/cluster_figures.py",
            "ebpo/reporting/json_files.py",
            "ebpo/reporting/style.py",
            "scripts/cluster_figures.py",
        ),
    shell:
        "python scripts/cluster_figures.py --topics {input.quality} --models {params.models} "
        "--difficulty {input.difficulty} --out {params.out} 2>&1 | tee {log}"
