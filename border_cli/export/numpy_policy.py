"""An exported policy that acts with numpy alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from border_cli.agent.greedy import ActionSelector
from border_cli.core.spaces import has_masks, split_mask
from border_cli.core.types import Array
from border_cli.errors import CheckpointError
from border_cli.export.form import PolicyForm
from border_cli.nn.numpy_network import TWINS
from border_cli.run.exported import ExportedFolder
from border_cli.system.files import POLICY_JSON


class NumpyPolicy:
    """Acts greedily; owned by the thread that calls it."""

    def __init__(self, form: PolicyForm, arrays: Mapping[str, NDArray[Any]]) -> None:
        self.form = form
        self._masked = has_masks(form.spec.observation)
        self._network = TWINS[form.twin](form.architecture, None, **form.twin_form)
        self._network.load(arrays)
        self._choice = ActionSelector(form.greedy, form.spec.action)

    def act(self, obs: Array, *, explore: bool = False) -> NDArray[Any]:
        """Returns greedy actions for N observations: [N] int64, or [N, A]. Cannot explore."""
        assert not explore
        return self.values_and_actions(obs)[1]

    def values_and_actions(self, obs: Array) -> tuple[NDArray[Any], NDArray[Any]]:
        """Returns the values that determine the actions, and the actions."""
        network_obs, mask = split_mask(obs) if self._masked else (obs, None)
        values = self._choice.values(self._network(network_obs))
        return values, self._choice.actions(values, mask)


def numpy_policy(folder: ExportedFolder) -> NumpyPolicy:
    """Loads the policy of a folder with `policy.npz`; raises CheckpointError if it is corrupt."""
    arrays = folder.arrays()
    try:
        return NumpyPolicy(PolicyForm.from_json(folder.content), arrays)
    except Exception as error:  # the file may contain anything
        raise CheckpointError(
            f"{folder.path / POLICY_JSON} is damaged: {type(error).__name__}: {error}"
        ) from error
