"""The machinery: recipes, trials, the store, verdicts and the report. Knows no paper and no model."""
