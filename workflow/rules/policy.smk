# The manifest holds the digest of the weights: what depends on a policy re-runs when its contents change, not its date.
rule base_policy:
    input:
        config=f"{ROOT}/config/policy-{{model}}.yaml",
    output:
        folder=directory(f"{ROOT}/base/{{model}}/model"),
        manifest=f"{ROOT}/base/{{model}}/policy.json",
    log:
        f"{ROOT}/logs/policy/{{model}}.log",
    benchmark:
        f"{ROOT}/benchmarks/policy/{{model}}.tsv"
    conda:
        "../../envs/cpu.yaml"
    threads: THREADS
    resources:
        mem_mb=MEMORY,
        runtime=LONG,
    params:
        # What builds a policy counts only where one is built: committed weights do not change with it.
        code=code_digest(
            *FOUNDATION,
            "ebpo/policy" if EXPERIMENT.rebuild_policy else "ebpo/policy/provide.py",
        ),
    shell:
        "python scripts/policy.py --config {input.config} --threads {threads} --out {output.folder} "
        "--manifest {output.manifest} 2>&1 | tee {log}"
