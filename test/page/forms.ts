import type { Locator, Page } from "playwright-core";
import { expect } from "vitest";
import { IS_CAMPAIGN } from "../support/sampling.ts";
import { fieldOf, fillIn } from "./fill-in.ts";
import { queryClientOf, service, showView, visitLoadedPage, withSeedData } from "./fixture.ts";
import { FORM_CASES, type FormCase, SECRET, type Step } from "./form-cases.ts";

// Runs the test cases of form-cases.ts: fills in and submits forms, and checks that the page stores no secret input.

const FIELD_TIMEOUT_MS = 120_000;
/** The cases that a normal run tests. A campaign tests all cases. */
const SAMPLE = ["a ServiceNow rule", "the scope of monitoring", "a B2C tenant", "an endpoint of a certificate"];
const testedCases = Object.entries(FORM_CASES).filter(([name]) => IS_CAMPAIGN || SAMPLE.includes(name));

/**
 * Submits invalid input and checks that the form shows the API's error: at its field, which gets the focus, or for the whole
 * form with the request id.
 */
async function submitInvalid(page: Page, dialog: Locator, { wrong, wrongField, press }: Step): Promise<void> {
  await fillIn(dialog, wrong!);
  const [answer] = await Promise.all([
    page.waitForResponse((response) => response.request().method() !== "GET"),
    dialog.getByRole("button", { name: press[0]!, exact: true }).click(),
  ]);
  const { detail, instance, errors = [] } = await answer.json();
  // The status is compared with itself, so that a failure of the test shows it.
  expect([answer.status(), answer.ok()]).toEqual([answer.status(), false]);
  if (wrongField === undefined) {
    await dialog.getByText(detail).waitFor();
    await dialog.getByText(`Request ID: ${instance}`).waitFor();
    return;
  }
  const field = fieldOf(dialog, wrongField);
  await expect
    .poll(() => field.getAttribute("aria-invalid"), {
      message: `${detail} ${JSON.stringify(errors)}`,
      timeout: FIELD_TIMEOUT_MS,
    })
    .toBe("true");
  const ids = (await field.getAttribute("aria-describedby"))!.split(" ");
  const fieldText = (await Promise.all(ids.map((id) => page.locator(`[id="${id}"]`).textContent()))).join(" ");
  // The page capitalizes the first letter of a message, so it is left out of the comparison.
  const isShown = ({ message }: { message: string }) => fieldText.includes(message.slice(1));
  expect(errors.filter(isShown), fieldText).not.toEqual([]);
  // The list of errors above the form does not repeat the error of the field.
  await dialog.getByText("Check the highlighted fields").waitFor();
  const listed = (await dialog.getByRole("alert").getByRole("listitem").allInnerTexts()).join("\n");
  const isRepeated = (error: { message: string }) => isShown(error) && listed.includes(error.message);
  expect(errors.filter(isRepeated)).toEqual([]);
  await expect.poll(() => field.evaluate((element) => element === element.ownerDocument.activeElement)).toBe(true);
}

async function runStep(page: Page, step: Step): Promise<void> {
  const dialog = page.getByRole("dialog");
  const named = { name: step.open, exact: true };
  await page.getByRole("button", named).or(page.getByRole("switch", named)).first().click();
  await dialog.waitFor();
  if (step.wrong) await submitInvalid(page, dialog, step);
  if (step.cancels) {
    await dialog.getByRole("button", { name: "Cancel" }).click();
    return await dialog.waitFor({ state: "hidden" });
  }
  await fillIn(dialog, step.typed ?? {});
  for (const button of step.press) await dialog.getByRole("button", { name: button, exact: true }).click();
  if (step.result) {
    await dialog.getByText(step.result).first().waitFor();
    await dialog.getByRole("button", { name: "Close", exact: true }).click();
  }
  await dialog.waitFor({ state: "hidden" });
  expect(await page.getByText("The form was closed, but the change was already sent").count()).toBe(0);
  await step.verify?.();
}

/** Returns the state of the page as one text: address, storage, cached responses and requests, document, and field values. */
const pageState = async (page: Page): Promise<string> =>
  await (await queryClientOf(page)).evaluate((client) => {
    // biome-ignore lint/suspicious/noExplicitAny: what React Query keeps
    const states = (cache: any) => cache.getAll().map(({ queryKey, state }: any) => ({ queryKey, state }));
    // biome-ignore lint/suspicious/noExplicitAny: as above
    const fields = [...document.querySelectorAll("input, textarea")].map(({ value }: any) => value);
    return JSON.stringify([
      location.href,
      history.state,
      { ...localStorage },
      { ...sessionStorage },
      states(client.getQueryCache()),
      states(client.getMutationCache()),
      document.documentElement.outerHTML,
      fields,
    ]);
  });

async function runCase(name: string, { leftovers, view, steps }: FormCase): Promise<void> {
  for (const path of (await leftovers?.()) ?? []) await service.admin("DELETE", path);
  const { page, browserErrors, requestedUrls } = await visitLoadedPage("/#/license");
  page.setDefaultTimeout(FIELD_TIMEOUT_MS);
  await page.getByRole("heading", { name: "License", exact: true }).waitFor();
  await showView(page, typeof view === "string" ? view : await view());
  const secrets = [SECRET];
  for (const step of steps) {
    if (step.again) await page.reload();
    if (step.view) await showView(page, await step.view());
    if (step.first) await page.getByRole("button", { name: step.first }).first().click();
    secrets.push(...secretsOf(step));
    await runStep(page, step).catch((error: Error) => {
      error.message = `${name}, ${step.open}: ${error.message}\n${browserErrors.join("\n")}`;
      throw error;
    });
  }
  const stored = [await pageState(page), ...requestedUrls, ...browserErrors].join("\n");
  expect(stored).toContain("/auth/me");
  for (const secret of secrets) expect(stored.includes(secret), `${name} stores ${secret.slice(0, 12)}`).toBe(false);
  // The browser logs rejected input as errors. There must be no others.
  expect(
    browserErrors.filter(
      (text) => !/^http\S+ \{.*"code":"(invalidRequest|notFound|conflict)"|status of 4(00|04|09) /.test(text),
    ),
  ).toEqual([]);
}

/** Returns the input of secret fields, without short input, which the page may contain for another reason. */
const secretsOf = ({ typed = {}, wrong = {} }: Step): string[] =>
  Object.entries({ ...wrong, ...typed }).flatMap(([label, value]) =>
    /secret|password|token|key file/i.test(label) && typeof value === "string" && value.length > 11 ? [value] : [],
  );

withSeedData.each(testedCases)("a form creates, edits and removes %s", runCase);
