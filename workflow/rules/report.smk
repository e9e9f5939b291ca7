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
        code=code_digest("ebpo/reporting", "scripts/tables.py"),
    shell:
        "python scripts/tables.py --config {input.config} --comparison {wildcards.comparison} "
        "--scores {input.scores} --paper {input.paper} --out {params.prefix} 2>&1 | tee {log}"


rule draw_figures:
    input:
        config=f"{ROOT}/config/experiment.yaml",
        metrics=METRICS,
        scores=SCORES,
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
        code=code_digest("ebpo/reporting", "scripts/figures.py"),
    shell:
        "python scripts/figures.py --config {input.config} --runs {params.runs} --scores {input.scores} "
        "--out {params.out} 2>&1 | tee {log}"


rule report:
    input:
        config=f"{ROOT}/config/experiment.yaml",
        tables=TABLES,
        figures=FIGURES,
        summaries=SUMMARIES,
        topics=f"{ROOT}/clusters/topics.json",
        theory=THEORY_FILES,
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
        figures=lambda wildcards, input: str(Path(input.figures[0]).parent),
        runs=RUN_FOLDERS,
        theory=lambda wildcards, input: str(Path(input.theory[0]).parent),
        code=code_digest("ebpo/reporting", "scripts/report.py"),
    shell:
        "python scripts/report.py --config {input.config} --tables {params.tables} --figures {params.figures} "
        "--runs {params.runs} --topics {input.topics} --theory {params.theory} "
        "--commit $(git rev-parse --short HEAD 2> /dev/null || echo unknown) --out {output} 2>&1 | tee {log}"


rule claims:
    input:
        config=f"{ROOT}/config/experiment.yaml",
        metrics=METRICS,
        scores=SCORES,
        problems=[path.replace("scores.csv", "per_problem.csv") for path in SCORES],
        paper=PAPER,
        theorems=f"{THEORY}/theorems.csv",
    output:
        multiext(f"{ROOT}/claims/claims", ".csv", ".md"),
        expand(
            f"{ROOT}/claims/{{name}}.csv",
            name=["averages", "differences", "efficiency", "efficiency_targets"],
        ),
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
        code=code_digest(
            "ebpo/reporting",
            "ebpo/evaluation/intervals.py",
            "ebpo/evaluation/paired.py",
            "scripts/claims.py",
        ),
    shell:
        "python scripts/claims.py --config {input.config} --runs {params.runs} --scores {input.scores} "
        "--paper {input.paper} --theory {params.theory} --out {params.out} 2>&1 | tee {log}"
