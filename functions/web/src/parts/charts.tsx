/** Fluent UI's charts. They are loaded after the words around them are there, since they are a third of all that is loaded. */
import { type ComponentProps, lazy, Suspense } from "react";
import type * as kinds from "./chart-kinds.ts";

const load = () => import("./chart-kinds.ts");
const LazyBars = lazy(async () => ({ default: (await load()).VerticalStackedBarChart }));
const LazyLine = lazy(async () => ({ default: (await load()).LineChart }));

/** @param props.height - Pixels, which are kept free until it is drawn. */
export const Bars = (props: ComponentProps<typeof kinds.VerticalStackedBarChart> & { height: number }) => (
  <Suspense fallback={<div style={{ height: props.height }} />}>
    <LazyBars {...props} />
  </Suspense>
);

export const Line = (props: ComponentProps<typeof kinds.LineChart> & { height: number }) => (
  <Suspense fallback={<div style={{ height: props.height }} />}>
    <LazyLine {...props} />
  </Suspense>
);
