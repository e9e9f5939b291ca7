# A job's own part of the configuration, so that it re-runs only when that part changes.
localrules:
    section,


rule section:
    output:
        f"{ROOT}/config/{{section}}.yaml",
    log:
        f"{ROOT}/logs/config/{{section}}.log",
    conda:
        "../../envs/cpu.yaml"
    params:
        text=lambda wildcards: dump_yaml(SECTIONS[wildcards.section]),
    shell:
        "printf %s {params.text:q} > {output} 2> {log}"
