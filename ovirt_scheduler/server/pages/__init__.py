"""What a browser, Prometheus and a load balancer read: pages, their JSON, metrics, health.

``server.http`` and ``daemon`` import it. It imports ``history``, ``model`` and ``errors``; jinja2
and prometheus_client are loaded when somebody first asks for what needs them.
"""
