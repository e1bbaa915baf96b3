import { Spinner } from "@fluentui/react-components";
import type { UseQueryResult } from "@tanstack/react-query";
import type { ReactNode } from "react";
import type { Problem } from "../api/client.ts";
import { ProblemNotice } from "./problem-notice.tsx";

/**
 * Renders the data of a query with `children`, in most views. Shows a spinner until the data is there, and the problem if the
 * query failed.
 */
export function QueryResult<T>({
  of: query,
  children,
}: {
  of: UseQueryResult<T, Problem>;
  children: (data: T) => ReactNode;
}) {
  if (query.data === undefined && !query.error) return <Spinner size="small" label="Loading" />;
  return (
    <>
      <QueryFailure of={query} />
      {query.data !== undefined && children(query.data)}
    </>
  );
}

/** Shows why a query failed. Data from an earlier response stays below, so the notice includes its age. */
export function QueryFailure({
  of: query,
}: {
  of: Pick<UseQueryResult<unknown, Problem>, "data" | "error" | "dataUpdatedAt"> & { refetch(): unknown };
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
