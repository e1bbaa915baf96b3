/** Fluent UI charts, loaded after the text of a view because they are a third of the page's size. */
import { type ComponentProps, lazy, Suspense } from "react";
import type * as kinds from "./chart-kinds.ts";

const load = () => import("./chart-kinds.ts");
const LazyBars = lazy(async () => ({ default: (await load()).VerticalStackedBarChart }));
const LazyLine = lazy(async () => ({ default: (await load()).LineChart }));

/**
 * A bar chart, on the Overview page.
 *
 * @param props.height - Height in pixels, reserved until the chart is loaded.
 */
export const Bars = (props: ComponentProps<typeof kinds.VerticalStackedBarChart> & { height: number }) => (
  <Suspense fallback={<div style={{ height: props.height }} />}>
    <LazyBars {...props} />
  </Suspense>
);

/**
 * A line chart, on the Overview and the Compliance page.
 *
 * @param props.height - Height in pixels, reserved until the chart is loaded.
 */
export const Line = (props: ComponentProps<typeof kinds.LineChart> & { height: number }) => (
  <Suspense fallback={<div style={{ height: props.height }} />}>
    <LazyLine {...props} />
  </Suspense>
);
