localrules:
    run_config,


rule run_config:
    output:
        f"{ROOT}/{RUN}/config.yaml",
    log:
        f"{ROOT}/logs/run_config/{RUN}.log",
    conda:
        "../../envs/cpu.yaml"
    params:
        text=lambda wildcards: dump_yaml(EXPERIMENT.run_config(run_of(wildcards))),
    shell:
        "printf %s {params.text:q} > {output} 2> {log}"


# Checkpoints lie in the run's folder under state/, undeclared: Snakemake never deletes them, a finished run does, and
# with the folder they are gone. Priority: long jobs first, evaluations fill the gaps.
rule train:
    input:
        unpack(prior_inputs),
        config=f"{ROOT}/{RUN}/config.yaml",
        policy=f"{ROOT}/base/{{model}}/policy.json",
        weights=ancient(f"{ROOT}/base/{{model}}/model"),
        train=f"{ROOT}/data/train.parquet",
        validation=f"{ROOT}/data/validation.parquet",
        prompts=f"{ROOT}/base/{{model}}/prompts/prompts.json",
        preflight=PREFLIGHT,
    output:
        model=directory(f"{ROOT}/{RUN}/model"),
        best=directory(f"{ROOT}/{RUN}/best"),
        metrics=f"{ROOT}/{RUN}/metrics.jsonl",
        summary=f"{ROOT}/{RUN}/summary.json",
    log:
        f"{ROOT}/logs/train/{RUN}.log",
    benchmark:
        f"{ROOT}/benchmarks/train/{RUN}.tsv"
    priority: 10
    conda:
        "../../envs/gpu.yaml" if GPUS else "../../envs/cpu.yaml"
    threads: THREADS
    resources:
        mem_mb=MEMORY,
        runtime=LONG,
        gpu=GPUS,
    params:
        out=output_folder,
        prompts=lambda wildcards, input: Path(input.prompts).parent,
        priors=prior_arguments,
        launch=launcher(EXPERIMENT.resources.processes),
        parallel=EXPERIMENT.resources.parallel,
        code=code_digest(
            *SAMPLING,
            "ebpo/algorithms",
            "ebpo/clustering/curriculum.py",
            "ebpo/evaluation/classes.py",
            "ebpo/evaluation/estimators.py",
            "ebpo/training",
            "ebpo/grading",
            "scripts/train.py",
        ),
    shell:
        "{params.launch} scripts/train.py --config {input.config} --policy {input.weights} --train {input.train} "
        "--validation {input.validation} --prompts {params.prompts} {params.priors} --parallel {params.parallel} "
        "--out {params.out} 2>&1 | tee {log}"
