"""Studies of Optuna and Ray Tune in which some trials do not fit: none fails, and each keeps its effective batch."""

import os
import tempfile
import unittest

#: Stands in for a device: samples of a trial's model that fit.
FITS = {"small": 100, "large": 10, "huge": 0}


def training(model, micro_batch, accumulation, steps):
    steps.append((model, micro_batch, accumulation))
    if micro_batch > FITS[model]:
        raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
    return 1.0 / (micro_batch * accumulation)


class Optuna(unittest.TestCase):
    def test_no_trial_fails_for_memory(self):
        import optuna
        from oomtune.integrations.optuna import memory_safe

        steps = []

        @memory_safe(lambda trial: trial.suggest_categorical("batch", [16, 64]))
        def objective(trial, micro_batch, accumulation):
            model = trial.suggest_categorical("model", ["small", "large", "huge"])
            return training(model, micro_batch, accumulation, steps)

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        grid = {"batch": [16, 64], "model": ["small", "large", "huge"]}
        study = optuna.create_study(sampler=optuna.samplers.GridSampler(grid, seed=0))
        study.optimize(objective, n_trials=6)
        states = {(t.params["batch"], t.params["model"]): t for t in study.trials}
        self.assertEqual(len(states), 6)
        for (batch, model), trial in states.items():
            if model == "huge":
                self.assertEqual(trial.state, optuna.trial.TrialState.PRUNED)
                self.assertTrue(trial.user_attrs["out_of_memory"])
                continue
            self.assertEqual(trial.state, optuna.trial.TrialState.COMPLETE)
            sizes = trial.user_attrs["micro_batch"], trial.user_attrs["accumulation"]
            self.assertEqual(sizes[0] * sizes[1], batch)
            self.assertEqual(sizes[0], min(batch, {"small": 64, "large": 8}[model]))
            self.assertEqual(trial.value, 1.0 / batch)

    def test_a_fault_of_the_objective_fails_its_trial(self):
        import optuna
        from oomtune.integrations.optuna import memory_safe

        @memory_safe(8)
        def objective(trial, micro_batch, accumulation):
            raise ValueError("mine")

        optuna.logging.set_verbosity(optuna.logging.CRITICAL)
        study = optuna.create_study()
        study.optimize(objective, n_trials=1, catch=(ValueError,))
        self.assertEqual(study.trials[0].state, optuna.trial.TrialState.FAIL)


class RayTune(unittest.TestCase):
    def test_no_trial_fails_for_memory(self):
        import ray
        from oomtune.integrations.ray import memory_safe
        from ray import tune

        fits = dict(FITS)

        @memory_safe(lambda config: config["batch"], if_nothing_fits={"loss": float("inf")})
        def train(config, micro_batch, accumulation):
            if micro_batch > fits[config["model"]]:
                raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
            tune.report({"loss": 1.0 / config["batch"], "micro_batch": micro_batch, "accumulation": accumulation})

        with tempfile.TemporaryDirectory() as folder:
            ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, _temp_dir=folder)
            try:
                space = {"batch": 16, "model": tune.grid_search(["small", "large", "huge"])}
                config = tune.RunConfig(storage_path=os.path.join(folder, "out"), verbose=0)
                tuner = tune.Tuner(
                    train, param_space=space, tune_config=tune.TuneConfig(metric="loss", mode="min"), run_config=config
                )
                results = tuner.fit()
                self.assertEqual((len(results), results.num_errors), (3, 0))
                self.assertNotEqual(results.get_best_result().config["model"], "huge")
                for result in results:
                    if result.config["model"] == "huge":
                        self.assertEqual(result.metrics["loss"], float("inf"))
                    else:
                        made = result.metrics["micro_batch"] * result.metrics["accumulation"]
                        self.assertEqual(made, result.config["batch"])
            finally:
                ray.shutdown()


if __name__ == "__main__":
    unittest.main()
