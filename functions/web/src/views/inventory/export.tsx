import { Button, Text } from "@fluentui/react-components";
import { useEffect, useRef, useState } from "react";
import { client, type Problem } from "../../api/client.ts";
import { ProblemNotice } from "../../parts/problem-notice.tsx";
import type { Filters } from "./query.ts";

/** Everything the filters let through, in one file: part after part by the cursor that each names, waiting where it must. */
export function CsvExport({ filters }: { filters: Filters }) {
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
      const file = await readAll(filters, signal, (bytes) => setState({ bytes, isOver: false }));
      save(file);
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
        {isBusy ? "Stop the export" : "Export all as CSV"}
      </Button>{" "}
      <Text role="status">{state && `${megabytes(state.bytes)} ${state.isOver ? "saved: all of them" : "read"}`}</Text>
      {problem && <ProblemNotice problem={problem} />}
    </div>
  );
}

const megabytes = (bytes: number): string =>
  `${(bytes / 1e6).toLocaleString(undefined, { minimumFractionDigits: 1, maximumFractionDigits: 1 })} MB`;

/** By which Excel knows UTF-8; reading a part as text takes it away. */
const BYTE_ORDER_MARK = "\uFEFF";

/** @throws {Problem} */
async function readAll(filters: Filters, signal: AbortSignal, read: (bytes: number) => void): Promise<Blob> {
  // The browser keeps blobs outside of the page's memory.
  let file = new Blob([BYTE_ORDER_MARK]);
  let cursor: string | undefined;
  do {
    const { data, error, response } = await client.GET("/api/assets/discovery/export/csv", {
      params: { query: { ...filters, ...(cursor !== undefined && { cursor }) } },
      parseAs: "text",
      signal,
    });
    if (error) throw error;
    // Each part is a file of its own, with the header line.
    file = new Blob([file, cursor === undefined ? data : data.slice(data.indexOf("\n") + 1)], { type: "text/csv" });
    read(file.size);
    cursor = nextCursor(response);
  } while (cursor !== undefined);
  return file;
}

/** Of the header `Link: <address>; rel="next"`. */
function nextCursor({ headers }: Response): string | undefined {
  const address = /<([^>]+)>; rel="next"/.exec(headers.get("link") ?? "")?.[1];
  return address === undefined
    ? undefined
    : (new URL(address, location.origin).searchParams.get("cursor") ?? undefined);
}

function save(file: Blob): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(file);
  link.download = "assets.csv";
  link.click();
  // The browser has begun to read it by then.
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
