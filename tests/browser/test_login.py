"""Signing in and out in a real Chromium."""

from collections.abc import Callable

import pytest

from tests.browser.conftest import Tab
from tests.browser.running import PASSWORD, relay

pytestmark = pytest.mark.browser


def test_sign_in_leads_back_to_where_one_wanted_to_go(tab: Callable[..., Tab]) -> None:
    with relay(ui={"password": PASSWORD}, host="0.0.0.0") as running:
        page = tab(running).go("/ui?q=badge&status=timeout").page
        field = page.get_by_label("Operator password")
        assert field.get_attribute("autocomplete") == "current-password"
        assert not page.get_by_role("alert").is_visible()
        field.fill("wrong")
        field.press("Enter")
        page.get_by_text("Wrong password. Try again.").wait_for()
        for _ in range(5):
            page.get_by_label("Operator password").fill("wrong")
            page.get_by_role("button", name="Sign in").click()
        page.get_by_text("Too many tries. Wait").wait_for()
        running.service._ui.access._tries.clear()
        page.get_by_label("Operator password").fill(PASSWORD)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url("**/ui?q=badge&status=timeout")
        page.get_by_role("button", name="Log out").click()
        page.wait_for_url("**/ui/login")
        page.goto(running.address + "/ui")
        page.wait_for_url("**/ui/login?next=**")


def test_an_ended_session_leads_to_sign_in(tab: Callable[..., Tab]) -> None:
    with relay(ui={"password": PASSWORD}) as running:
        page = tab(running).go().page
        page.get_by_label("Operator password").fill(PASSWORD)
        page.get_by_role("button", name="Sign in").click()
        page.get_by_text("No exchanges yet").wait_for()
        page.context.clear_cookies()
        page.wait_for_url("**/ui/login?next=%2Fui&ended=1")
        page.get_by_role("alert").get_by_text("You were signed out. Sign in again.").wait_for()
        page.get_by_label("Operator password").fill(PASSWORD)
        page.get_by_role("button", name="Sign in").click()
        page.get_by_text("No exchanges yet").wait_for()
