# Minutes, before days: what the long jobs need of a node is there. They have its verdict as an input.
rule preflight_model:
    input:
        config=f"{ROOT}/config/experiment.yaml",
        policy=f"{ROOT}/base/{{model}}/policy.json",
        weights=ancient(f"{ROOT}/base/{{model}}/model"),
        train=f"{ROOT}/data/train.parquet",
        validation=f"{ROOT}/data/validation.parquet",
        prompts=f"{ROOT}/base/{{model}}/prompts/prompts.json",
    output:
        f"{ROOT}/preflight/{{model}}.json",
    log:
        f"{ROOT}/logs/preflight/{{model}}.log",
    benchmark:
        f"{ROOT}/benchmarks/preflight/{{model}}.tsv"
    priority: 30
    conda:
        "../../envs/gpu.yaml" if GPUS else "../../envs/cpu.yaml"
    threads: THREADS
    resources:
        mem_mb=MEMORY,
        runtime=more(30),
        gpu=GPUS,
    params:
        prompts=lambda wildcards, input: Path(input.prompts).parent,
        launch=launcher(EXPERIMENT.resources.processes),
        parallel=EXPERIMENT.resources.parallel,
        code=code_digest(
            "ebpo/preflight.py", "ebpo/estimate.py", "scripts/preflight.py"
        ),
    shell:
        "{params.launch} scripts/preflight.py --config {input.config} --model {wildcards.model} "
        "--policy {input.weights} --train {input.train} --validation {input.validation} --prompts {params.prompts} "
        "--parallel {params.parallel} --out {output} 2>&1 | tee {log}"
