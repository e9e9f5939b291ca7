# The code behind tables, figures and claims.
REPORTING = [
    "ebpo/reporting",
    "ebpo/evaluation/intervals.py",
    "ebpo/evaluation/paired.py",
]
BASE_FOLDERS = [f"{ROOT}/base/{model}" for model in EXPERIMENT.models]
# Pass rates cost a sampling of all problems: the report shows them only where a run needs them anyway.
SHOWN_CLUSTERS = (
    CLUSTER_FIGURES
    if EXPERIMENT.curriculum.drops
    or any(run.order in DIFFICULTY_ORDERS for run in RUNS)
    else []
)


rule table:
    input:
        config=f"{ROOT}/config/experiment.yaml",
        scores=lambda w: comparison_files(w.comparison, "scores.csv"),
        problems=lambda w: comparison_files(w.comparison, "per_problem.csv"),
        paper=PAPER,
    output:
        multiext(f"{ROOT}/tables/{{comparison}}", ".csv", ".md", ".tex"),
    log:
        f"{ROOT}/logs/table/{{comparison}}.log",
    conda:
        "../../envs/report.yaml"
    threads: 1
    resources:
        mem_mb=more(1000),
        runtime=more(10),
    params:
        prefix=lambda wildcards, output: os.path.splitext(output[0])[0],
        code=code_digest(*REPORTING, "scripts/tables.py"),
    shell:
        "python scripts/tables.py --config {input.config} --comparison {wildcards.comparison} "
        "--scores {input.scores} --paper {input.paper} --out {params.prefix} 2>&1 | tee {log}"


rule draw_figures:
    input:
        config=f"{ROOT}/config/experiment.yaml",
        metrics=METRICS,
        scores=SCORES,
        problems=PROBLEM_SCORES,
    output:
        FIGURES,
    log:
        f"{ROOT}/logs/figures.log",
    benchmark:
        f"{ROOT}/benchmarks/figures.tsv"
    conda:
        "../../envs/report.yaml"
    threads: 1
    resources:
        mem_mb=MEMORY,
        runtime=more(10),
    params:
        runs=RUN_FOLDERS,
        out=output_folder,
        code=code_digest(*REPORTING, "scripts/figures.py"),
    shell:
        "python scripts/figures.py --config {input.config} --runs {params.runs} --scores {input.scores} "
        "--out {params.out} 2>&1 | tee {log}"


rule report:
    input:
        config=f"{ROOT}/config/experiment.yaml",
        claims=CLAIMS,
        tables=TABLES,
        figures=FIGURES,
        clusters=SHOWN_CLUSTERS,
        metrics=METRICS,
        summaries=SUMMARIES,
        examples=[f"{folder}/evaluation/examples.jsonl" for folder in RUN_FOLDERS],
        topics=f"{ROOT}/clusters/topics.json",
        theory=THEORY_FILES,
        manifest=f"{ROOT}/data/manifest.json",
        policies=[f"{folder}/policy.json" for folder in BASE_FOLDERS],
        records=[f"{folder}/evaluation/record.json" for folder in BASE_FOLDERS],
    output:
        REPORT,
    log:
        f"{ROOT}/logs/report.log",
    benchmark:
        f"{ROOT}/benchmarks/report.tsv"
    conda:
        "../../envs/report.yaml"
    threads: 1
    resources:
        mem_mb=more(1000),
        runtime=more(10),
    params:
        tables=[f"{ROOT}/tables/{comparison}" for comparison in EXPERIMENT.comparisons],
        claims=lambda wildcards, input: str(Path(input.claims[0]).parent),
        figures=lambda wildcards, input: str(Path(input.figures[0]).parent),
        clusters=list(dict.fromkeys(Path(path).stem for path in SHOWN_CLUSTERS)),
        runs=RUN_FOLDERS,
        base=BASE_FOLDERS,
        theory=lambda wildcards, input: str(Path(input.theory[0]).parent),
        code=code_digest("ebpo/reporting", "scripts/report.py"),
    shell:
        "python scripts/report.py --config {input.config} --claims {params.claims} --tables {params.tables} "
        "--figures {params.figures} --clusters {params.clusters} --runs {params.runs} --topics {input.topics} "
        "--theory {params.theory} --manifest {input.manifest} --base {params.base} "
        "--commit $(git rev-parse --short HEAD 2> /dev/null || echo unknown) --out {output} 2>&1 | tee {log}"


rule claims:
    input:
        config=f"{ROOT}/config/experiment.yaml",
        metrics=METRICS,
        scores=SCORES,
        problems=PROBLEM_SCORES,
        paper=PAPER,
        theorems=f"{THEORY}/theorems.csv",
    output:
        CLAIMS,
    log:
        f"{ROOT}/logs/claims.log",
    benchmark:
        f"{ROOT}/benchmarks/claims.tsv"
    conda:
        "../../envs/report.yaml"
    threads: 1
    resources:
        mem_mb=MEMORY,
        runtime=more(10),
    params:
        runs=RUN_FOLDERS,
        theory=lambda wildcards, input: str(Path(input.theorems).parent),
        out=output_folder,
        code=code_digest(*REPORTING, "scripts/claims.py"),
    shell:
        "python scripts/claims.py --config {input.config} --runs {params.runs} --scores {input.scores} "
        "--paper {input.paper} --theory {params.theory} --out {params.out} 2>&1 | tee {log}"
