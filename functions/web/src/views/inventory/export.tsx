import { Button, Text } from "@fluentui/react-components";
import { useEffect, useRef, useState } from "react";
import { client, type Problem } from "../../api/client.ts";
import { ProblemNotice } from "../../parts/problem-notice.tsx";
import { saveFile } from "../../parts/save-file.ts";
import { BYTE_ORDER_MARK } from "../../parts/table-csv.ts";
import type { Filters } from "./query.ts";

/**
 * The button of the Inventory page that downloads all assets that match the filters as one CSV file, in the order of the list
 * and with all columns. The API returns the file in parts, by cursor. Leaving the page cancels the download.
 */
export function CsvExport({ filters }: { filters: Filters }) {
  /** Progress of the download, and undefined before a click and after a failure. */
  const [state, setState] = useState<{ bytes: number; isOver: boolean }>();
  const [problem, setProblem] = useState<Problem>();
  const running = useRef<AbortController>(undefined);
  useEffect(() => () => running.current?.abort(), []);

  async function download() {
    const controller = new AbortController();
    const { signal } = controller;
    running.current = controller;
    setProblem(undefined);
    setState({ bytes: 0, isOver: false });
    try {
      const file = await readAllParts(filters, signal, (bytes) => setState({ bytes, isOver: false }));
      saveFile(file, "assets.csv");
      setState({ bytes: file.size, isOver: true });
    } catch (error) {
      setState(undefined);
      if (!signal.aborted) setProblem(error as Problem);
    }
  }

  const isBusy = state !== undefined && !state.isOver;
  return (
    <div>
      <Button size="small" onClick={() => (isBusy ? running.current?.abort() : void download())}>
        {isBusy ? "Cancel export" : "Export as CSV"}
      </Button>{" "}
      <Text role="status">{state && `${megabytes(state.bytes)} ${state.isOver ? "exported" : "loaded"}`}</Text>
      {problem && <ProblemNotice problem={problem} />}
    </div>
  );
}

/** Returns a size as text, such as "1.5 MB". */
const megabytes = (bytes: number): string =>
  `${(bytes / 1e6).toLocaleString(undefined, { minimumFractionDigits: 1, maximumFractionDigits: 1 })} MB`;

/** Returns the whole file. @throws {Problem} If a part can't be read. */
async function readAllParts(filters: Filters, signal: AbortSignal, onProgress: (bytes: number) => void): Promise<Blob> {
  // Reading a response as text removes its byte order mark, so the file gets one here. Browsers can store blobs outside the
  // page's memory.
  let file = new Blob([BYTE_ORDER_MARK]);
  let cursor: string | undefined;
  do {
    const { data, error, response } = await client.GET("/api/assets/discovery/export/csv", {
      params: { query: { ...filters, ...(cursor !== undefined && { cursor }) } },
      parseAs: "text",
      signal,
    });
    if (error) throw error;
    // Each part starts with a header line.
    file = new Blob([file, cursor === undefined ? data : data.slice(data.indexOf("\n") + 1)], { type: "text/csv" });
    onProgress(file.size);
    cursor = nextCursor(response);
  } while (cursor !== undefined);
  return file;
}

/** Returns the cursor from the header `Link: <address>; rel="next"`. */
function nextCursor({ headers }: Response): string | undefined {
  const address = /<([^>]+)>; rel="next"/.exec(headers.get("link") ?? "")?.[1];
  return address === undefined
    ? undefined
    : (new URL(address, location.origin).searchParams.get("cursor") ?? undefined);
}
