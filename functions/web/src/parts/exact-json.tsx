import { visibleText } from "./visible-text.ts";

/** Shows a JSON value in full. Nothing in it can hide from a person what is approved. */
export const ExactJson = ({ value }: { value: unknown }) => (
  <pre style={{ whiteSpace: "pre-wrap", overflowWrap: "anywhere" }}>{visibleText(JSON.stringify(value, null, 2))}</pre>
);
