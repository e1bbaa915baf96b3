import { visibleText } from "./visible-text.ts";

/** Shows a JSON value in full, so that a person sees the whole request before the approval. */
export const ExactJson = ({ value }: { value: unknown }) => (
  <pre style={{ whiteSpace: "pre-wrap", overflowWrap: "anywhere" }}>{visibleText(JSON.stringify(value, null, 2))}</pre>
);
