"""What a press of Tab offers, by Hydra's completion for each shell."""

from __future__ import annotations

from collections.abc import Sequence

from hydra.core.object_type import ObjectType
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.plugins.completion_plugin import CompletionPlugin
from omegaconf.errors import OmegaConfBaseException

from border_cli.config.compose import Composer
from border_cli.config.loader import Loader, hydra_turn
from border_cli.config.overrides import HIDDEN_GROUPS
from border_cli.core.errors import BorderError, ConfigError


class _Offered(Loader):
    """Leaves out the groups that nobody chooses from."""

    def get_group_options(
        self,
        group_name: str,
        results_filter: ObjectType | None = ObjectType.CONFIG,
        config_name: str | None = None,
        overrides: list[str] | None = None,
    ) -> list[str]:
        found = super().get_group_options(group_name, results_filter, config_name, overrides)
        return [each for each in found if group_name or each not in HIDDEN_GROUPS]


def shell_plugin(shell: str, folders: Sequence[str] = ()) -> CompletionPlugin:
    """Hydra's part for one shell, which prints by itself what installs it."""
    plugins = Plugins.instance().discover(CompletionPlugin)
    known = {each.provides(): each for each in plugins if issubclass(each, CompletionPlugin)}
    if shell not in known:
        raise ConfigError(f"-sc: no shell {shell!r}; known: {', '.join(sorted(known))}")
    return known[shell](_Offered(folders))


def matches(shell: str, composer: Composer, overrides: Sequence[str], word: str) -> list[str]:
    """What the word under the cursor may become, after these overrides.

    Settings that cannot be composed yet offer nothing: a Tab never prints a refusal.
    """
    with hydra_turn():
        try:
            composer.imported(list(overrides))
            line = " ".join([*overrides, word])
            plugin = shell_plugin(shell, composer.folders)
            return list(plugin._query(config_name=composer.config_name, line=line))
        except (BorderError, HydraException, OmegaConfBaseException, ValueError):
            return []
