import { Spinner } from "@fluentui/react-components";
import type { UseQueryResult } from "@tanstack/react-query";
import type { ReactNode } from "react";
import type { Problem } from "../api/client.ts";
import { ProblemNotice } from "./problem-notice.tsx";

/** What a query answers, drawn by `children`; until then that it loads, or why it failed. */
export function Answer<T>({
  of: query,
  children,
}: {
  of: UseQueryResult<T, Problem>;
  children: (data: T) => ReactNode;
}) {
  if (query.data === undefined && !query.error) return <Spinner size="small" label="Loading" />;
  return (
    <>
      <Failure of={query} />
      {query.data !== undefined && children(query.data)}
    </>
  );
}

/** Why a query failed. What it answered before stays below, so its age is said. */
export function Failure({
  of: query,
}: {
  of: Pick<UseQueryResult<unknown, Problem>, "data" | "error" | "dataUpdatedAt" | "refetch">;
}) {
  if (!query.error) return null;
  return (
    <ProblemNotice
      problem={query.error}
      retry={() => void query.refetch()}
      {...(query.data !== undefined && { shownFrom: new Date(query.dataUpdatedAt) })}
    />
  );
}
