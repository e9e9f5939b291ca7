rule topics:
    input:
        config=f"{ROOT}/config/topics.yaml",
        problems=f"{ROOT}/data/train.parquet",
    output:
        table=f"{ROOT}/clusters/topics.parquet",
        quality=f"{ROOT}/clusters/topics.json",
    log:
        f"{ROOT}/logs/topics.log",
    benchmark:
        f"{ROOT}/benchmarks/topics.tsv"
    conda:
        "../../envs/cpu.yaml"
    threads: THREADS
    resources:
        mem_mb=MEMORY,
        runtime=60,
    params:
        code=code_digest(*FOUNDATION, "ebpo/clustering/topics.py", "scripts/topics.py"),
    shell:
        "python scripts/topics.py --config {input.config} --problems {input.problems} --threads {threads} "
        "--out {output.table} 2>&1 | tee {log}"


rule difficulty:
    input:
        config=f"{ROOT}/config/difficulty-{{model}}.yaml",
        policy=f"{ROOT}/base/{{model}}/policy.json",
        weights=ancient(f"{ROOT}/base/{{model}}/model"),
        problems=f"{ROOT}/data/train.parquet",
    output:
        f"{ROOT}/clusters/{{model}}/difficulty.parquet",
    log:
        f"{ROOT}/logs/difficulty/{{model}}.log",
    benchmark:
        f"{ROOT}/benchmarks/difficulty/{{model}}.tsv"
    priority: 20
    conda:
        "../../envs/gpu.yaml" if GPUS else "../../envs/cpu.yaml"
    threads: THREADS
    resources:
        mem_mb=MEMORY,
        runtime=EXPERIMENT.resources.train_minutes,
        gpu=GPUS,
    params:
        code=code_digest(
            *SAMPLING,
            "ebpo/clustering/difficulty.py",
            "ebpo/grading",
            "scripts/difficulty.py",
        ),
    shell:
        "python scripts/difficulty.py --config {input.config} --policy {input.weights} --problems {input.problems} "
        "--out {output} 2>&1 | tee {log}"
