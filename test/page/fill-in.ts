/** Fills in fields by their labels. */
import type { Locator } from "playwright-core";

/** By the words on a field: text, the words of a choice, or whether a box is checked. */
export type Typed = Record<string, string | boolean>;

const escaped = (text: string) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

/** The field that is called so; `*` is the only one there is. */
export const fieldOf = (dialog: Locator, label: string) =>
  label === "*"
    ? dialog.locator("input, select, textarea").first()
    : dialog.getByLabel(new RegExp(`^${escaped(label)}\\*?$`)).first();

export async function fillIn(dialog: Locator, values: Typed): Promise<void> {
  for (const [label, value] of Object.entries(values)) {
    const field = fieldOf(dialog, label);
    if (typeof value === "boolean") await field.setChecked(value);
    else if ((await field.evaluate((element) => element.tagName)) === "SELECT")
      await field.selectOption({ label: value });
    else await field.fill(value);
  }
}
