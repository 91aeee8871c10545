"""The plot of allocations: stacked bars of the users' shares of each resource, as the DRF paper's Figure 3."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from fairlead.html_page import COLOURS
from fairlead.model.arrays import Numbers
from fairlead.model.problems import Problem

MOST_DRAWN = 60


class Shares(Protocol):
    """What is drawn of an allocation: tasks and dominant shares, shape (users,); shares, shape (users, resources)."""

    @property
    def problem(self) -> Problem: ...

    @property
    def policy(self) -> str: ...

    @property
    def tasks(self) -> Numbers: ...

    @property
    def shares(self) -> Numbers: ...

    @property
    def dominant_shares(self) -> Numbers: ...


def draw(allocations: Sequence[Shares]) -> go.Figure:
    """Draw allocations of one problem side by side; the users with the largest shares, where there are many."""
    problem = allocations[0].problem
    size = np.sum([found.dominant_shares.astype(float) for found in allocations], axis=0)
    shown = sorted(sorted(range(len(problem.users)), key=lambda i: -size[i])[:MOST_DRAWN])
    figure = make_subplots(
        cols=len(allocations), shared_yaxes=True, subplot_titles=[found.policy for found in allocations]
    )
    for column, found in enumerate(allocations, 1):
        shares = found.shares.astype(float)
        for place, i in enumerate(shown):
            figure.add_bar(
                x=list(problem.resources),
                y=shares[i].tolist(),
                name=problem.users[i],
                legendgroup=problem.users[i],
                showlegend=column == 1,
                marker_color=COLOURS[place % len(COLOURS)],
                text=[f"{share:.0%}" if share >= 0.03 else "" for share in shares[i]],
                hovertemplate=f"{problem.users[i]}: %{{y:.2%}} of %{{x}}, {float(found.tasks[i]):.4g} tasks<extra></extra>",
                row=1,
                col=column,
            )
    figure.update_layout(
        barmode="stack", template="plotly_white", yaxis_tickformat=".0%", yaxis_title="share", legend_title="user"
    )
    return figure
